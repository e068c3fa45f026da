# Shows the host the capabilities of a process that it forks.
if os.fork() == 0:
    meet()
    os._exit(0)
os.wait()
