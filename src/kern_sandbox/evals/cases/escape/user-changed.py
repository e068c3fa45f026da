# Tries to become root by every call that changes the user, and shows the host which it is.
for function in (os.setuid, os.seteuid, os.setgid, os.setegid):
    with suppress(OSError): function(0)
libc.setfsuid(0)
meet()
