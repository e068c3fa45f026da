# Leaves a directory with the set-group-id bit in the workspace.
attempt(lambda: os.mkdir("folder"), lambda: os.chmod("folder", 0o2777))
