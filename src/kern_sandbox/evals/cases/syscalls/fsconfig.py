# Configures a file system to be mounted.
answer("fsconfig", -1, 0, 0, 0, 0)
