# Makes a socket for reliable datagrams.
got = libc.socket(21, 5, 0)
meet("answer", "socket-rds", "ok" if got >= 0 else errno.errorcode[ctypes.get_errno()])
