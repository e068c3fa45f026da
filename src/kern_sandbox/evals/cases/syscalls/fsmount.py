# Mounts an opened file system.
answer("fsmount", -1, 0, 0)
