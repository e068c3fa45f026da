# Ends in the middle of a code.
import sys; sys.stdout.write("REAL OUTPUT\n\x1b[3")
