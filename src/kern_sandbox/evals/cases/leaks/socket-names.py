# Lists the local sockets of the host.
attempt(lambda: open("/proc/net/unix").read())
