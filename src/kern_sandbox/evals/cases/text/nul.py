# Prints a NUL in a label.
print("[sand\0box: oom] a\0b")
