# Opens a program of the host for writing.
meet()
with suppress(OSError):
    file = open("/usr/bin/env", "r+b")
meet()
