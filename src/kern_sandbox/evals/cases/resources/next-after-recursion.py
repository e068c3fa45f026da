# Recurses without end, after which the next call must work.
import threading
sys.setrecursionlimit(10**5)
def deeper(): return deeper()
threading.stack_size(1 << 20)
deeper()
# ---- next call ----
print(1)
