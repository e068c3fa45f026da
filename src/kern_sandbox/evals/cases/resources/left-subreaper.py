# Leaves a child that collects orphans.
if os.fork() == 0:
    libc.prctl(36, 1, 0, 0, 0)
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for number in range(3): os.dup2(null, number)
    os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(60)", stage["token"]])
wait_until_shown()
