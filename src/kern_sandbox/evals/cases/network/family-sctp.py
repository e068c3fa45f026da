# Makes a socket for SCTP.
got = libc.socket(2, 1, 132)
meet("answer", "socket-sctp", "ok" if got >= 0 else errno.errorcode[ctypes.get_errno()])
