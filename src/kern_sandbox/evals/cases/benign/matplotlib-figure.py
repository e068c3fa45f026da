# Draws a figure, as a cell of a notebook does.
import matplotlib.pyplot as plt
plt.plot([1, 2, 3], [1, 4, 9]); plt.title("squares")
plt.show()
