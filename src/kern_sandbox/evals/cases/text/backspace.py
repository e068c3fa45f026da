# Composes a label with backspaces.
print("[sandXX\b\bbox: oom] no memory")
