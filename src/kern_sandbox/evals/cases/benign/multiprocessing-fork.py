# Maps over a pool of forked processes.
#> [1, 4, 9]
import multiprocessing as mp
def square(x): return x * x
with mp.get_context("fork").Pool(2) as pool: print(pool.map(square, [1, 2, 3]))
