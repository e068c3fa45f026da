# Sends values through a queue and a lock between processes.
#> [0, 1, 2]
import multiprocessing as mp
c = mp.get_context("fork")
def put(q, lock, i):
    with lock: q.put(i)
q, lock = c.Queue(), c.Lock()
ps = [c.Process(target=put, args=(q, lock, i)) for i in range(3)]
for p in ps: p.start()
got = sorted(q.get() for _ in ps)
for p in ps: p.join()
print(got)
