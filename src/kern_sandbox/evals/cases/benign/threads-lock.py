# Counts in threads under a lock.
#> 40000
import threading
n, lock = 0, threading.Lock()
def add():
    global n
    for _ in range(10000):
        with lock: n += 1
ts = [threading.Thread(target=add) for _ in range(4)]
for t in ts: t.start()
for t in ts: t.join()
print(n)
