# Shows the host the namespaces of a process that it forks.
if os.fork() == 0:
    meet()
    os._exit(0)
os.wait()
