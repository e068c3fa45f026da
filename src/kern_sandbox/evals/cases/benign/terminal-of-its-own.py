# Runs a program on a terminal of its own.
#> True
import os, pty
pid, fd = pty.fork()
if pid == 0: os.execvp("sh", ["sh", "-c", "test -t 1 && echo terminal"])
print(b"terminal" in os.read(fd, 100))
os.waitpid(pid, 0)
