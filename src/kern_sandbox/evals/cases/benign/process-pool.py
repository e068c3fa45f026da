# Computes in an executor of processes.
#> [3, 5]
from concurrent.futures import ProcessPoolExecutor
import multiprocessing as mp
with ProcessPoolExecutor(2, mp_context=mp.get_context("fork")) as pool: print(list(pool.map(len, ["abc", "abcde"])))
