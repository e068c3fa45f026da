# Reads the timers of Linux.
attempt(lambda: content("/proc/timer_list"))
