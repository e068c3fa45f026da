# Handles a signal that it sends itself, and an alarm.
#> user
#> alarm
import os, signal
signal.signal(signal.SIGUSR1, lambda *a: print("user"))
signal.signal(signal.SIGALRM, lambda *a: print("alarm"))
os.kill(os.getpid(), signal.SIGUSR1)
signal.setitimer(signal.ITIMER_REAL, 0.01)
signal.pause()
