# Clears the screen by one 8-bit code.
print("before\x9b2Jafter")
