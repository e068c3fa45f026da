# Starts threads without end; the error is its own to handle.
import threading
stop = threading.Event()
count = 0
try:
    while count < 2000:
        threading.Thread(target=stop.wait, daemon=True).start()
        count += 1
except RuntimeError as error: print(error)
stop.set()
assert count < 2000
