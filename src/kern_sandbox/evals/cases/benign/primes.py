# Sieves the primes below a hundred thousand.
#> 9592
sieve = bytearray([1]) * 100000
sieve[:2] = b"\0\0"
for i in range(2, 317):
    if sieve[i]: sieve[i * i :: i] = bytes(len(range(i * i, 100000, i)))
print(sum(sieve))
