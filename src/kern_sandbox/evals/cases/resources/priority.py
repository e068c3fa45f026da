# Tries to raise its priority, its schedule and that of init.
for function in (lambda: os.nice(-5), lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(5)),
                 lambda: os.sched_setaffinity(1, {0}), lambda: os.setpriority(os.PRIO_PROCESS, 1, 19)):
    with suppress(OSError): function()
meet()
