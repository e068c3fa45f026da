# Prints every 8-bit control.
print("a" + "".join(map(chr, range(0x80, 0xA0))) + "\nlast line")
