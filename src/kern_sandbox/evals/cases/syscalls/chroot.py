# Changes its root directory.
answer("chroot", NOWHERE)
