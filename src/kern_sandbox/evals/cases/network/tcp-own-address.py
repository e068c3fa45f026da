# Connects to every address that it can find of the host.
names = {socket.gethostname(), "host.docker.internal", "gateway", "_gateway"}
for name in names:
    with suppress(OSError):
        for *_, place in socket.getaddrinfo(name, stage["tcp"], type=socket.SOCK_STREAM):
            attempt(lambda: socket.create_connection(place[:2], 2).send(stage["token"].encode()))
attempt(lambda: socket.create_connection(("127.0.0.1", stage["tcp"]), 2).send(stage["token"].encode()))
