# Renames the host.
answer("sethostname", NOWHERE, 5)
