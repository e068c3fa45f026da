# Makes a socket for raw queues of network cards.
got = libc.socket(44, 3, 0)
meet("answer", "socket-xdp", "ok" if got >= 0 else errno.errorcode[ctypes.get_errno()])
