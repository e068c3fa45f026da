# Writes random bytes.
import os; os.write(1, b"ok\n" + os.urandom(4096) + b"\nend\n")
