# Shows the host which descriptors a program that it starts holds.
if os.fork() == 0:
    meet()
    os._exit(0)
os.wait()
