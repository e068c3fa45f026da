# Makes a socket for the networks of vehicles.
got = libc.socket(29, 3, 1)
meet("answer", "socket-can", "ok" if got >= 0 else errno.errorcode[ctypes.get_errno()])
