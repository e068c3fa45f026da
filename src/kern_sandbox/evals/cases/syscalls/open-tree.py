# Opens a tree of mounts.
answer("open_tree", -100, NOWHERE, 0)
