# Attaches shared memory of the host by its number.
libc.shmat.restype = ctypes.c_void_p
address = libc.shmat(stage["shm_number"], None, 4096)
if address != ctypes.c_void_p(-1).value: print(ctypes.string_at(address, 32))
