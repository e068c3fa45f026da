# Reads the memory of init by what its maps say.
def read():
    found = b""
    for line in open("/proc/1/maps"):
        first, last = (int(one, 16) for one in line.split()[0].split("-"))
        if "[stack]" in line or "[heap]" in line:
            with open("/proc/1/mem", "rb", buffering=0) as memory:
                memory.seek(first); found += memory.read(last - first)
    return found
attempt(read, lambda: content("/proc/1/auxv"))
