# Composes a label by returning to the start of the line.
print("xsandbox: oom]\r[")
