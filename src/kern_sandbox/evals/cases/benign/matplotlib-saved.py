# Saves a figure as PNG and SVG.
#> True True
import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt
fig, ax = plt.subplots(); ax.bar(["a", "b"], [1, 2])
fig.savefig("f.png"); fig.savefig("f.svg"); plt.close(fig)
print(open("f.png", "rb").read(4) == b"\x89PNG", "<svg" in open("f.svg").read())
