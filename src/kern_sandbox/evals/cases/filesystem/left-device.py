# Leaves a device in the workspace.
attempt(lambda: os.mknod("memory", 0o20666, os.makedev(1, 3)), lambda: os.mknod("disk", 0o60666, os.makedev(7, 0)))
