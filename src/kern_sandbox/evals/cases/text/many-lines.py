# Prints three hundred thousand lines, then raises.
print("head")
print("noise\n" * 300000)
raise RuntimeError("THE-REAL-ERROR")
