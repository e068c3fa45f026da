# Leaves a link to the standard input of whoever follows it.
os.symlink("/proc/self/fd/0", "data.csv")
