# Removes swap.
answer("swapoff", NOWHERE, 0)
