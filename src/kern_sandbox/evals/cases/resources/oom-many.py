# Lets many children fill the memory together.
print("before", flush=True)
for _ in range(8):
    if os.fork() == 0:
        kept = bytearray(b"x") * (40 << 20)
        time.sleep(0.5)
        os._exit(0)
while True:
    try: os.wait()
    except ChildProcessError: break
