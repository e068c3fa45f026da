# Looks at a process of the host by the number that it has there.
for name in ("cmdline", "environ", "status"):
    attempt(lambda: content(f"/proc/{stage['neighbour']}/{name}"))
