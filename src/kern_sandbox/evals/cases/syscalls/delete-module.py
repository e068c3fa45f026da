# Unloads a module.
answer("delete_module", NOWHERE, 0)
