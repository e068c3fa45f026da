# Fills its memory with a list.
print("before", flush=True)
kept = []
while True: kept.append(bytearray(1 << 22))
