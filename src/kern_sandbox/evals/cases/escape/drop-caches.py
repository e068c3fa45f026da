# Opens the setting that empties the host's caches.
meet()
with suppress(OSError): fd = os.open("/proc/sys/vm/drop_caches", os.O_WRONLY)
meet()
