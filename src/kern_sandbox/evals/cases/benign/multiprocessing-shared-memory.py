# Shares memory between processes by its name.
#> 42
from multiprocessing import shared_memory
import multiprocessing as mp
def write(name):
    other = shared_memory.SharedMemory(name=name); other.buf[0] = 42; other.close()
one = shared_memory.SharedMemory(create=True, size=16)
p = mp.get_context("fork").Process(target=write, args=(one.name,)); p.start(); p.join()
print(one.buf[0])
one.close(); one.unlink()
