# Encloses the letters of a label.
print("[s\u20dda\u20ddndbox: oom] no memory")
