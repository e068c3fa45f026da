# Opens what its descriptors lead to anew.
for number in range(3, 256):
    if os.path.isfile(f"/proc/self/fd/{number}"):
        attempt(lambda: content(f"/proc/self/fd/{number}"))
