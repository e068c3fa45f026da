# Reads the list of users with keys on the host.
attempt(lambda: content("/proc/key-users"))
