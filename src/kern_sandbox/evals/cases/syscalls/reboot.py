# Restarts the host, with a magic number that is wrong.
answer("reboot", 0, 0, 0, 0)
