# Moves the cursor and writes over a line.
print("one\x1b[1A\x1b[2Ktwo\x1b[10;10Hthree")
