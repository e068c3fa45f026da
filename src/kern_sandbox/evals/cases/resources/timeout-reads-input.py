# Waits for input that is never given, then for ever.
print("before", flush=True)
try: input()
except EOFError: pass
time.sleep(1000)
