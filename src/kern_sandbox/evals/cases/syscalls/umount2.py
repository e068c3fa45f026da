# Unmounts something.
answer("umount2", NOWHERE, 0)
