# Changes the flags of a mount.
answer("mount_setattr", -100, NOWHERE, 0, NOWHERE, 32)
