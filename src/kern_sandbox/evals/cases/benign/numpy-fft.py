# Finds a frequency with numpy.
#> 5
import numpy as np
t = np.linspace(0, 1, 256, endpoint=False)
print(int(np.abs(np.fft.rfft(np.sin(2 * np.pi * 5 * t))).argmax()))
