# Unshares its users.
answer("unshare", 0x10000000)
