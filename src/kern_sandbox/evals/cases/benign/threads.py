# Adds up in threads.
#> 4950
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(8) as pool: print(sum(pool.map(int, range(100))))
