# Looks at the command line of every process that it sees.
for pid in filter(str.isdigit, os.listdir("/proc")):
    attempt(lambda: content(f"/proc/{pid}/cmdline"))
