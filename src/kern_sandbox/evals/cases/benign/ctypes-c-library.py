# Calls the C library.
#> 5 1.4142
import ctypes, ctypes.util
c = ctypes.CDLL(None)
m = ctypes.CDLL(ctypes.util.find_library("m") or "libm.so.6"); m.sqrt.restype = ctypes.c_double
print(c.strlen(b"hello"), round(m.sqrt(ctypes.c_double(2)), 4))
