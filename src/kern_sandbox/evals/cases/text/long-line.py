# Prints one line of five million characters.
print("head" + "x" * 5000000 + "tail")
