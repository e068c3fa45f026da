# Prints a colour code with two million parameters.
print("\x1b[" + "9;" * 1000000 + "m end")
