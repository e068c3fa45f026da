# Makes a socket for the keys of IPsec.
got = libc.socket(15, 3, 2)
meet("answer", "socket-key", "ok" if got >= 0 else errno.errorcode[ctypes.get_errno()])
