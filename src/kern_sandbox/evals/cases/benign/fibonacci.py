# Computes Fibonacci numbers with a cache.
#> 354224848179261915075
from functools import lru_cache
@lru_cache(None)
def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
print(fib(100))
