# Forks without end; the error is its own to handle.
children = []
try:
    while len(children) < 2000:
        pid = os.fork()
        if pid == 0:
            time.sleep(30)
            os._exit(0)
        children.append(pid)
except OSError as error: print(error)
for pid in children: os.kill(pid, 9)
assert len(children) < 2000
