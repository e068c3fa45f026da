# Looks into the environment of every process that it sees.
for pid in filter(str.isdigit, os.listdir("/proc")):
    attempt(lambda: content(f"/proc/{pid}/environ"))
