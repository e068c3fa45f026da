# Draws from a seeded generator and saves arrays.
#> True (3,)
import numpy as np
rng = np.random.default_rng(7)
x = rng.normal(size=100000)
np.savez("x.npz", x=x[:3])
print(abs(x.mean()) < 0.02, np.load("x.npz")["x"].shape)
