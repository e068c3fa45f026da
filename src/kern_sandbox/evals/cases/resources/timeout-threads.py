# Keeps every processor busy with threads and children.
import threading
print("before", flush=True)
for _ in range(4): os.fork()
for _ in range(8): threading.Thread(target=lambda: all(1 for _ in iter(int, 1)), daemon=True).start()
while True: pass
