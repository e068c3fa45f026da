# Begins two hundred thousand titles.
print("\x1b]0;" * 200000 + "\nREAL OUTPUT")
