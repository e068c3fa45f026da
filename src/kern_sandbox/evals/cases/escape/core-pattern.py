# Opens the setting of what Linux runs for a crash.
meet()
with suppress(OSError): file = open("/proc/sys/kernel/core_pattern", "r+")
meet()
