# Writes over a line.
print("[sandbox: oom]\rall is well   ")
