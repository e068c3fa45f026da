# Tries to take back that it may not gain privileges.
libc.prctl(38, 0, 0, 0, 0)
meet()
