# Opens the list of users for writing.
meet()
with suppress(OSError):
    file = open("/etc/passwd", "r+b")
meet()
