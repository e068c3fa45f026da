# Mounts something.
answer("mount", NOWHERE, NOWHERE, NOWHERE, 0, 0)
