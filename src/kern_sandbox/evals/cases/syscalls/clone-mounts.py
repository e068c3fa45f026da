# Clones a process into a new namespace for mounts.
number = NUMBERS["clone"][platform.machine() == "aarch64"]
pid = libc.syscall(ctypes.c_long(number), ctypes.c_long(0x20000 | 0x10000000 | 17), 0, 0, 0, 0)
got = "ok" if pid >= 0 else errno.errorcode[ctypes.get_errno()]
if pid == 0: os._exit(0)
if pid > 0: os.waitpid(pid, 0)
meet("answer", "clone", got)
