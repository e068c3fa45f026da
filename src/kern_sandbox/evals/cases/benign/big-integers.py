# Works with integers of a thousand digits.
#> 1001 604
n = 10**1000 + 7
print(len(str(n)), len(str(2**2005 % n)))
