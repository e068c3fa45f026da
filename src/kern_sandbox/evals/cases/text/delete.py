# Composes a label with delete characters.
print("[sand\x7fbox: oom] no memory")
