# Multiplies and inverts matrices with numpy.
#> 8000000000.0 True
import numpy as np
a = np.ones((2000, 2000))
m = np.array([[2.0, 1.0], [1.0, 3.0]])
print((a @ a).sum(), np.allclose(np.linalg.inv(m) @ m, np.eye(2)))
