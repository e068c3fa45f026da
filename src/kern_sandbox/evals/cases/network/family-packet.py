# Makes a socket for packets of the network.
got = libc.socket(17, 3, 0)
meet("answer", "socket-packet", "ok" if got >= 0 else errno.errorcode[ctypes.get_errno()])
