# Prints a label.
print("[sandbox: oom] the code used too much memory")
