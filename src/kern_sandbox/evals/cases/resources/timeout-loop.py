# Loops for ever.
print("before", flush=True)
while True: pass
