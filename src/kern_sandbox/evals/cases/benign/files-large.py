# Writes and reads twenty megabytes.
#> 20971520 True
import hashlib
block = bytes(range(256)) * 4096
with open("big", "wb") as f:
    for _ in range(20): f.write(block)
data = open("big", "rb").read()
print(len(data), hashlib.sha256(data).hexdigest() == hashlib.sha256(block * 20).hexdigest())
