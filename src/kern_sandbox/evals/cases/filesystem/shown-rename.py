# Renames over a file that is shown read-only.
attempt(lambda: os.rename(stage["shown"] + "/program", stage["shown"] + "/writable"))
