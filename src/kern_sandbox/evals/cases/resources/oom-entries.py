# Fills its memory with the names of empty files.
import os
print("before", flush=True)
for number in range(2000000): os.close(os.open(f"/tmp/{number}", os.O_CREAT))
