# Names one host in the first line of a request to the proxy and another in its headers.
def ask(*lines):
    place = os.environ.get("http_proxy", f"http://127.0.0.1:{stage['tcp']}").partition("://")[2].split(":")
    one = socket.create_connection((place[0], int(place[1])), 3)
    one.settimeout(0.2)
    one.sendall("\r\n".join([*lines, "", stage["token"]]).encode())
    return one.recv(4096)[:60]
here = f"127.0.0.1:{stage['tcp']}"
attempt(lambda: ask("GET http://example.invalid/ HTTP/1.1", f"Host: {here}"),
        lambda: ask(f"GET http://{here}/ HTTP/1.1", "Host: example.invalid"),
        lambda: ask("GET http://example.invalid/ HTTP/1.1", "Host: example.invalid", f"Host: {here}"),
        lambda: ask("POST http://example.invalid/ HTTP/1.1", "Content-Length: 5", "Transfer-Encoding: chunked", "",
                    "0", "", f"CONNECT {here} HTTP/1.1", f"Host: {here}", ""))
