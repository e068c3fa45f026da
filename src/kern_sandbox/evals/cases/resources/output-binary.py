# Writes random bytes without end of line, more than is kept.
for _ in range(64): os.write(1, os.urandom(1 << 16))
