# Goes by the roots and working directories of every process that it sees.
for pid in filter(str.isdigit, os.listdir("/proc")):
    attempt(lambda: content(f"/proc/{pid}/root" + stage["secret"]), lambda: content(f"/proc/{pid}/cwd/../../../../.." + stage["secret"]))
