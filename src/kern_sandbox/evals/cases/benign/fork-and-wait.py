# Forks a child and reads what it writes to a pipe.
#> from the child 3
import os
r, w = os.pipe()
pid = os.fork()
if pid == 0:
    os.write(w, b"from the child"); os._exit(3)
os.close(w)
print(os.read(r, 100).decode(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
