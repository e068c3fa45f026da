# Leaves a daemon, as daemons are made.
if os.fork() == 0:
    os.setsid()
    if os.fork(): os._exit(0)
    null = os.open(os.devnull, os.O_RDWR)
    for number in range(3): os.dup2(null, number)
    os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(60)", stage["token"]])
os.wait()
wait_until_shown()
