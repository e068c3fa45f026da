# Leaves by sys.exit after exit functions and finally blocks.
#> finally
#> at exit
import atexit, sys
atexit.register(print, "at exit")
try: sys.exit(0)
finally: print("finally")
