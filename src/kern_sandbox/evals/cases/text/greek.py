# Writes a label with Greek and Armenian letters.
print("[s\u03b1ndb\u03bfx: oom] [sa\u0578dbox: oom] no memory")
