# Nests a label in a label, for whoever removes the inner one.
print("[sand[sandbox: oom]box: oom] [sandbox: [sandbox: oom] oom] end")
