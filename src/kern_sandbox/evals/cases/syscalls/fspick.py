# Picks a mounted file system to change it.
answer("fspick", -100, NOWHERE, 0)
