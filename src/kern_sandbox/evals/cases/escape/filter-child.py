# Shows the host whether a filter lies on a process that it forks.
if os.fork() == 0:
    meet()
    os._exit(0)
os.wait()
