# Removes a file that is shown read-only.
attempt(lambda: os.unlink(stage["shown"] + "/writable"))
