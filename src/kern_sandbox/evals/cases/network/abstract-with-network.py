# Connects to an abstract socket of the host from a box that has the host's network.
def talk():
    one = socket.socket(socket.AF_UNIX)
    one.connect("\0" + stage["abstract"])
    return one.send(stage["token"].encode())
attempt(talk)
