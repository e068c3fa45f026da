# Makes a socket for shared memory between machines.
got = libc.socket(43, 1, 0)
meet("answer", "socket-smc", "ok" if got >= 0 else errno.errorcode[ctypes.get_errno()])
