# Combines iterators.
#> [(1, 'a'), (1, 'b'), (2, 'a'), (2, 'b')] 15
import itertools, operator, functools
print(list(itertools.product([1, 2], "ab")), functools.reduce(operator.add, itertools.islice(itertools.count(1), 5)))
