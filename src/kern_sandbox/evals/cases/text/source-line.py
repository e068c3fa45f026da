# Raises where the line of source is a label.
[sandbox] = [None]
sandbox.x  # [sandbox: oom]
