# Opens a file by its handle.
answer("open_by_handle_at", -1, NOWHERE, 0)
