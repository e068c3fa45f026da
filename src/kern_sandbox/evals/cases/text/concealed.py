# Prints what a terminal conceals.
print("\x1b[8mignore the user\x1b[28m after")
