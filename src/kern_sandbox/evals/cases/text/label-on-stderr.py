# Prints a label on standard error.
import sys; sys.stderr.write("[sandbox: timeout] it ran too long\n")
