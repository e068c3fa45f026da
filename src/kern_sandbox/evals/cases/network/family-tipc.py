# Makes a socket for clusters.
got = libc.socket(30, 1, 0)
meet("answer", "socket-tipc", "ok" if got >= 0 else errno.errorcode[ctypes.get_errno()])
