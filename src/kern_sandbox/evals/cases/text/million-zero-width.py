# Prints a million zero-width characters.
print("\u200b" * 1000000 + "end")
