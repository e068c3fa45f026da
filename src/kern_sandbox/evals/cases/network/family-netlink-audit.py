# Makes a socket for the audit of Linux.
got = libc.socket(16, 3, 9)
meet("answer", "socket-netlink-audit", "ok" if got >= 0 else errno.errorcode[ctypes.get_errno()])
