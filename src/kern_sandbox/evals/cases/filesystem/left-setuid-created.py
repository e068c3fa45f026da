# Leaves a program with the set-user-id bit in the workspace, by making it so.
attempt(lambda: os.close(os.open("program", os.O_CREAT | os.O_WRONLY, 0o4755)))
os.umask(0)
attempt(lambda: os.close(os.open("other", os.O_CREAT | os.O_WRONLY, 0o6777)), lambda: libc.creat(b"third", 0o4755))
