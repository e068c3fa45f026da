# Moves a mount.
answer("move_mount", -100, NOWHERE, -100, NOWHERE, 0)
