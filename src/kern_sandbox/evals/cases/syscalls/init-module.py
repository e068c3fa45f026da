# Loads a module from memory.
answer("init_module", 0, 0, NOWHERE)
