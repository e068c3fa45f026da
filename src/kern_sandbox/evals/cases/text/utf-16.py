# Writes UTF-16.
import os; os.write(1, b"ok\n" + "[sandbox: oom]".encode("utf-16") + b"\nend\n")
