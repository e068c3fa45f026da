# Mounts, remounts and unmounts, and lets the host compare its mounts.
meet()
for arguments in ((b"x", b"/tmp", b"tmpfs", 0, 0), (0, b"/", 0, 32 | 4096, 0)):
    call("mount", *arguments)
call("umount2", b"/proc/keys", 2)
meet()
