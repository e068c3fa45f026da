# Sends a datagram to the host's loopback by an address of version 6.
one = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
attempt(lambda: one.sendto(stage["token"].encode(), ("::ffff:127.0.0.1", stage["udp"])))
