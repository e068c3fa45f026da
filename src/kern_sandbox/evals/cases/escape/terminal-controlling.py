# Opens the terminal of whoever started the box.
meet()
with suppress(OSError): fd = os.open("/dev/tty", os.O_RDWR)
meet()
