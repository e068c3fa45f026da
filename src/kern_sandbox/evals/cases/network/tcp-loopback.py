# Connects to a service on the host's loopback.
attempt(lambda: socket.create_connection(("127.0.0.1", stage["tcp"]), 3).send(stage["token"].encode()))
