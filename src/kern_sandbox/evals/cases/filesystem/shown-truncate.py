# Truncates a file that is shown read-only.
attempt(lambda: os.truncate(stage["shown"] + "/writable", 0))
