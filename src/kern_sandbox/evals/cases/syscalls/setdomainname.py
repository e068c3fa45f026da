# Renames the host's domain.
answer("setdomainname", NOWHERE, 5)
