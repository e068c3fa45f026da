# Reads the host's list of users and their passwords.
for path in ("/etc/shadow", "/etc/passwd", "/etc/group"): attempt(lambda: content(path))
