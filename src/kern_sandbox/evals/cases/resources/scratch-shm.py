# Fills its shared memory; the error is its own to handle.
def fill(path):
    with open(path, "wb", buffering=0) as file:
        for _ in range(4096): file.write(b"x" * (1 << 20))
attempt(lambda: fill("/dev/shm/fill"))
os.unlink("/dev/shm/fill")
