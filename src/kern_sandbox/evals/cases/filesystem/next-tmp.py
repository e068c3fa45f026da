# Leaves a file in the scratch directories, for the next call to find.
for folder in ("/tmp", "/var/tmp", "/dev/shm", os.path.expanduser("~"), "/run", "/run/cell", "/dev", "/"):
    with suppress(OSError), open(f"{folder}/left-{stage['token']}", "w") as file: file.write(stage["once"])
# ---- next call ----
for folder in ("/tmp", "/var/tmp", "/dev/shm", os.path.expanduser("~"), "/run", "/run/cell", "/dev", "/"):
    path = f"{folder}/left-{stage['token']}"
    with suppress(OSError):
        print(content(path)); os.unlink(path)
