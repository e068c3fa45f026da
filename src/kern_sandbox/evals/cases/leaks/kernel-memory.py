# Reads the memory of Linux.
attempt(lambda: content("/proc/kcore"))
