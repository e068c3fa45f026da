# Reads the log of Linux.
answer("syslog", 99, 0, 0)
