# Connects to a socket in the host's file system.
def talk(path):
    one = socket.socket(socket.AF_UNIX)
    one.connect(path)
    return one.send(stage["token"].encode())
attempt(lambda: talk(stage["unix_path"]), lambda: talk("/proc/1/root" + stage["unix_path"]))
