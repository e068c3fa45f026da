# Opens the host's log device.
meet()
with suppress(OSError): fd = os.open("/dev/kmsg", os.O_WRONLY)
meet()
