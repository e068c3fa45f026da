# Writes a label with Cyrillic letters.
print("[s\u0430ndbox: oom] [\u0455\u0430ndb\u043e\u0445: oom] no memory")
