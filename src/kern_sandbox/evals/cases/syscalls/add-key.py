# Adds a key.
answer("add_key", NOWHERE, NOWHERE, 0, 0, -3)
