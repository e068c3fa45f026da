# Turns bracketed paste off and the mouse on.
print("\x1b[?2004l\x1b[?1000h\x1b[?1003hafter")
