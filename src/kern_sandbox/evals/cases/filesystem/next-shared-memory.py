# Leaves a segment of shared memory, for the next call to find.
key = int(stage["token"][:7], 16)
number = libc.shmget(key, 4096, 0o1666)
libc.shmat.restype = ctypes.c_void_p
address = libc.shmat(number, None, 0)
ctypes.memmove(address, stage["once"].encode(), 32)
# ---- next call ----
key = int(stage["token"][:7], 16)
number = libc.shmget(key, 4096, 0)
libc.shmat.restype = ctypes.c_void_p
if number >= 0:
    print(ctypes.string_at(libc.shmat(number, None, 0), 32))
    libc.shmctl(number, 0, None)
