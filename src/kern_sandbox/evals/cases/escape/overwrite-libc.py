# Opens the C library of the host for writing.
meet()
path = next(line.split()[-1] for line in open("/proc/self/maps") if "libc.so" in line or "libc-" in line)
with suppress(OSError):
    file = open(path, "r+b")
meet()
