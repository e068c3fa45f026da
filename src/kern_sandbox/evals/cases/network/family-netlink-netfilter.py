# Makes a socket for the packet filter of Linux.
got = libc.socket(16, 3, 12)
meet("answer", "socket-netlink-netfilter", "ok" if got >= 0 else errno.errorcode[ctypes.get_errno()])
