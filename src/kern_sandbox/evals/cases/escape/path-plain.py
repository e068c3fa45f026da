# Reads the host's file by its own name.
attempt(lambda: content(stage["secret"]))
