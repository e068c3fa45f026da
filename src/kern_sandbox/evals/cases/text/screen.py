# Switches to the other screen, hides the cursor, resets.
print("\x1b[?1049h\x1b[?25l\x1bcafter")
