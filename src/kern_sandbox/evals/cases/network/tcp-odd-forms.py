# Connects to the host's loopback by odd forms of its address.
for host in ("2130706433", "0x7f000001", "0177.0.0.1", "127.1", "::ffff:127.0.0.1", "0", "0.0.0.0"):
    attempt(lambda: socket.create_connection((host, stage["tcp"]), 3).send(stage["token"].encode()))
