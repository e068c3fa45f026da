# Maps an array in a file.
#> 499500
import numpy as np
m = np.memmap("m.dat", dtype="int64", mode="w+", shape=(1000,))
m[:] = range(1000); m.flush()
print(np.memmap("m.dat", dtype="int64", mode="r").sum())
