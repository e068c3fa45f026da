# Prints in colours.
print("\x1b[1;31mred\x1b[0m and \x1b[38;5;208morange\x1b[0m")
