# Opens a file that is shown read-only for reading, then anew for writing by its descriptor.
fd = os.open(stage["shown"] + "/writable", os.O_RDONLY)
attempt(lambda: os.write(os.open(f"/proc/self/fd/{fd}", os.O_WRONLY), b"broken"))
