# Unshares its users with the upper half of the argument set, which a check of 64 bits would miss.
answer("unshare", 0x10000000 | 1 << 40)
