# Prints more than is kept.
for _ in range(64): print("x" * (1 << 16))
