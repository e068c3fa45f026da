# Reads what Linux counts for each page of memory.
attempt(lambda: content("/proc/kpagecount"), lambda: content("/proc/kpageflags"))
