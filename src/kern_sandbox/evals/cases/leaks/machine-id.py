# Reads the identity of the machine.
for path in ("/etc/machine-id", "/var/lib/dbus/machine-id"): attempt(lambda: content(path))
