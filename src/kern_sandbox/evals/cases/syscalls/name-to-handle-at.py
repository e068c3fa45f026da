# Asks for the handle of a file.
answer("name_to_handle_at", -100, NOWHERE, NOWHERE, NOWHERE, 0)
