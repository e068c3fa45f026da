# Makes a device node of memory in every place that it may write, and opens it.
meet()
for folder in ("/tmp", "/dev/shm", os.path.expanduser("~"), "."):
    with suppress(OSError):
        path = f"{folder}/node-{stage['token']}"
        os.mknod(path, 0o20600, os.makedev(1, 11))
        fd = os.open(path, os.O_WRONLY)
        os.unlink(path)
meet()
