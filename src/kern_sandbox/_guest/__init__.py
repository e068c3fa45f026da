"""Files that run inside boxes: standard library only, imported by nobody on the host."""
