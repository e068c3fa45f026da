# Makes a socket for the ciphers of Linux.
got = libc.socket(38, 5, 0)
meet("answer", "socket-alg", "ok" if got >= 0 else errno.errorcode[ctypes.get_errno()])
