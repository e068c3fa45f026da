# Sends data along with the first packet of a connection.
def fast():
    one = socket.socket()
    one.settimeout(3)
    try: return one.sendto(stage["token"].encode(), socket.MSG_FASTOPEN, ("127.0.0.1", stage["tcp"]))
    except OSError: return one.connect(("127.0.0.1", stage["tcp"])) or one.send(stage["token"].encode())
attempt(fast)
