# Opens the setting that lets others reach the loopback.
meet()
with suppress(OSError): file = open("/proc/sys/net/ipv4/conf/all/route_localnet", "r+")
meet()
