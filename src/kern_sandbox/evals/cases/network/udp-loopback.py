# Sends a datagram to the host's loopback.
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
attempt(lambda: one.sendto(stage["token"].encode(), ("127.0.0.1", stage["udp"])))
