# Reads its input, which is empty.
#> no input ''
import sys
try: input()
except EOFError: print("no input", repr(sys.stdin.read()))
