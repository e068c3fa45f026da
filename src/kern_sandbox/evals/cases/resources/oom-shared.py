# Fills its memory by way of anonymous shared memory.
import mmap
print("before", flush=True)
kept = []
while True:
    kept.append(mmap.mmap(-1, 1 << 22))
    kept[-1].write(b"x" * (1 << 22))
