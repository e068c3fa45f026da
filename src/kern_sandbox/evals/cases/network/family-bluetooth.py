# Makes a socket for Bluetooth.
got = libc.socket(31, 3, 0)
meet("answer", "socket-bluetooth", "ok" if got >= 0 else errno.errorcode[ctypes.get_errno()])
