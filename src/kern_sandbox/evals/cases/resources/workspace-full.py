# Fills the workspace beyond its ceiling.
print("before", flush=True)
with open("fill", "wb", buffering=0) as file:
    for _ in range(4096):
        file.write(os.urandom(1 << 20))
        time.sleep(0.005)
time.sleep(20)
