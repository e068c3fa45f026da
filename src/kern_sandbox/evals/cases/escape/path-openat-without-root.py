# Opens relative to a descriptor of the root directory.
root = os.open("/", os.O_PATH)
for start in ("", "../../..", "proc/self/root/.."):
    def read(start=start):
        fd = os.open(start + stage["secret"] if start else stage["secret"].lstrip("/"), os.O_RDONLY, dir_fd=root)
        return os.read(fd, 4096)
    attempt(read)
