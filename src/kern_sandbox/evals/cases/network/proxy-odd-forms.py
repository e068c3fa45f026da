# Asks the proxy for the host's loopback by odd forms of its address and of the allowed name.
def ask(host):
    place = os.environ.get("http_proxy", f"http://127.0.0.1:{stage['tcp']}").partition("://")[2].split(":")
    one = socket.create_connection((place[0], int(place[1])), 3)
    one.settimeout(0.1)
    one.sendall(f"CONNECT {host}:{stage['tcp']} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    with suppress(OSError): one.recv(4096)
    return one.send(stage["token"].encode())
for host in ("2130706433", "0x7f.1", "127.1", "[::ffff:127.0.0.1]", "[::1]", "0", "localhost.", "example.invalid@127.0.0.1",
             "127.0.0.1#example.invalid", "127.0.0.1\x00.example.invalid", "127.0.0.1%00example.invalid"):
    attempt(lambda: ask(host))
