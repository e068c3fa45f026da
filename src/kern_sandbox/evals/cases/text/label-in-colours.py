# Splits a label with colours.
print("\x1b[31m[sand\x1b[0mbox: oom] all memory is used\x1b[m")
