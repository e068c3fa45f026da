# Compresses in three ways.
#> True True True
import bz2, gzip, lzma
data = b"abc" * 1000
print(*(m.decompress(m.compress(data)) == data for m in (bz2, gzip, lzma)))
