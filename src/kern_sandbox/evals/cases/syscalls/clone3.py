# Clones with its arguments in memory.
answer("clone3", NOWHERE, 8)
