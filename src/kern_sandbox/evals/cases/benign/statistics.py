# Describes numbers.
#> 5.5 5.5 3.03
import statistics as s
x = list(range(1, 11))
print(s.mean(x), s.median(x), round(s.stdev(x), 2))
