# Adds swap.
answer("swapon", NOWHERE, 0)
