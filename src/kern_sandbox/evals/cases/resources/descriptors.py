# Opens descriptors without end; the error is its own to handle.
kept = []
try:
    while len(kept) < 100000: kept.append(os.dup(0))
except OSError as error: print(error)
assert len(kept) < 100000
