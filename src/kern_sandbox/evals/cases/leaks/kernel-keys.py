# Reads the list of keys of the host.
attempt(lambda: content("/proc/keys"))
