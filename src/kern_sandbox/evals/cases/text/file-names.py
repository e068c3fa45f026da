# Makes files with labels, codes and lines in their names.
import os
for name in (b"\xff\xfe", b"a\nb", b"\x1b[31m", b"[sandbox: oom]", b"-rf", b" ", "\u202egpj.exe".encode()): open(os.path.join(b".", name), "w").close()
