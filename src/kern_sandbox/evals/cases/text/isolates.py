# Wraps a label in isolates and marks.
print("\u2066[sand\u2069\u200ebox: oom]\u200f no memory")
