# Opens the setting that makes the host a router.
meet()
with suppress(OSError): file = open("/proc/sys/net/ipv4/ip_forward", "r+")
meet()
