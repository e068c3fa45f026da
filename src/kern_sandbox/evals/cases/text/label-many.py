# Nests fifty thousand labels.
print("[sandbox: " * 50000 + "oom]" * 50000 + "end")
