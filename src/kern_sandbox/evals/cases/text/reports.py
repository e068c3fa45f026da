# Asks a terminal for reports that it types into the shell.
print("\x1b[6n\x1b[c\x1b[>c\x05\x1b[21tafter")
