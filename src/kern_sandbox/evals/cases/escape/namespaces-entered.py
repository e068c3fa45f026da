# Tries to enter the namespaces of every process that it sees.
meet()
for pid in filter(str.isdigit, os.listdir("/proc")):
    for kind in ("user", "net", "pid", "ipc", "uts"):
        with suppress(OSError):
            fd = os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY)
            call("setns", fd, 0)
            os.close(fd)
meet()
