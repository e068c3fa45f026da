# Fills its scratch directory; the error is its own to handle.
def fill(path):
    with open(path, "wb", buffering=0) as file:
        for _ in range(4096): file.write(b"x" * (1 << 20))
attempt(lambda: fill("/tmp/fill"))
assert os.path.getsize("/tmp/fill") <= 64 << 20
