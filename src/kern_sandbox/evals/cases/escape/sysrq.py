# Opens the file whose letters crash or restart the host.
meet()
with suppress(OSError): fd = os.open("/proc/sysrq-trigger", os.O_WRONLY)
meet()
