# Makes a socket for the machine that the host runs on.
got = libc.socket(40, 1, 0)
meet("answer", "socket-vsock", "ok" if got >= 0 else errno.errorcode[ctypes.get_errno()])
