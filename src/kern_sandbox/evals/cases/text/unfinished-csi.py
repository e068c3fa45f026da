# Begins a code with no final byte.
print("\x1b[12;12\nREAL OUTPUT")
