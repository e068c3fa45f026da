# Asks a terminal to echo by a device string.
print("\x1bP$q\"p\x1b\\after")
