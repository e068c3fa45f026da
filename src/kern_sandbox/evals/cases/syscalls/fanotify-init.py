# Watches a whole file system.
answer("fanotify_init", 0x200, 0)
