# Fills its memory with the names of empty files.
print("before", flush=True)
for number in range(2000000): open(f"/tmp/{number}", "w").close()
