# Goes past the proxy, with the variables that name it taken away.
for name in list(os.environ):
    if "proxy" in name.lower(): del os.environ[name]
attempt(lambda: socket.create_connection(("127.0.0.1", stage["tcp"]), 3).send(stage["token"].encode()))
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
attempt(lambda: one.sendto(stage["token"].encode(), ("127.0.0.1", stage["udp"])))
