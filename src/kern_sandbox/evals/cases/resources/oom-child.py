# Lets a child fill the memory, and absorbs its end.
print("before", flush=True)
child = "kept = []\nwhile True: kept.append(bytearray(1 << 22))"
subprocess.run([sys.executable, "-c", child])
