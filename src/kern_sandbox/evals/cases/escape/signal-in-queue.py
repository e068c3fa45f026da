# Queues a signal for a process of the host, and for its thread.
libc.sigqueue(stage["neighbour"], 9, None)
libc.tgkill(stage["neighbour"], stage["neighbour"], 9)
