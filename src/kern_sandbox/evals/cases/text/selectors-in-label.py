# Splits a label with variation selectors.
print("[s\ufe00an\ufe01dbox: oom] no memory")
