# Connects to the host's loopback by name.
attempt(lambda: socket.create_connection(("localhost", stage["tcp"]), 3).send(stage["token"].encode()))
