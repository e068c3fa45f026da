# Reads a file in the host's shared memory.
attempt(lambda: content(stage["shm_path"]), lambda: [content("/dev/shm/" + name) for name in os.listdir("/dev/shm") if "evals" in name])
