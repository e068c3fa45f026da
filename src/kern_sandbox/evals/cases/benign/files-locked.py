# Locks a file and maps it into memory.
#> b'HELLO'
import fcntl, mmap
with open("m", "w+b") as f:
    fcntl.flock(f, fcntl.LOCK_EX); f.write(b"hello"); f.flush()
    with mmap.mmap(f.fileno(), 0) as m: m[:5] = m[:5].upper()
print(open("m", "rb").read())
