# Shows the host whether a filter lies on threads that it starts.
import threading
stop = threading.Event()
threads = [threading.Thread(target=stop.wait) for _ in range(3)]
for thread in threads: thread.start()
meet()
stop.set()
for thread in threads: thread.join()
