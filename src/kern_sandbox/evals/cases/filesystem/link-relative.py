# Leaves a link that climbs out of the workspace.
os.symlink("../" * 40 + stage["secret"].lstrip("/"), "notes.txt")
