# Opens the setting of what Linux runs to load a module.
meet()
with suppress(OSError): file = open("/proc/sys/kernel/modprobe", "r+")
meet()
