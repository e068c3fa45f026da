# Writes a label in tag characters.
print("".join(chr(0xE0000 + c) for c in b"[sandbox: oom]") + "end")
