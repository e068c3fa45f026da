# Loads a module from a file.
answer("finit_module", -1, NOWHERE, 0)
