# Executes a program that is in memory only; the filter goes with it.
fd = os.memfd_create("program")
os.write(fd, b"#!/bin/sh\nexit 0\n")
if os.fork() == 0:
    with suppress(OSError): os.execve(fd, ["program"], {})
    os._exit(1)
os.wait()
meet()
