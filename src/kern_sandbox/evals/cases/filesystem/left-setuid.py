# Leaves a program with the set-user-id bit in the workspace, by changing its mode.
with open("program", "w") as file: file.write("#!/bin/sh\n")
for mode in (0o4755, 0o6755, 0o2755): attempt(lambda: os.chmod("program", mode))
