# Prints every character that there is.
print("".join(chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000))
