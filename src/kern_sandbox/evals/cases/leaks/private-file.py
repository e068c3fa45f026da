# Reads a file of another user's in a directory that is shown.
attempt(lambda: content(stage["shown"] + "/private"))
