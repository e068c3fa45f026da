# Fills its memory by way of a file that is in memory only.
print("before", flush=True)
fd = os.memfd_create("hole")
while True: os.write(fd, b"x" * (1 << 22))
