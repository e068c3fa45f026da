# Serves a directory over HTTP on its own loopback and asks it.
#> 200 hello
import functools, http.server, threading, urllib.request
with open("index.html", "w") as f: f.write("hello")
class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
threading.Thread(target=server.serve_forever, daemon=True).start()
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
with opener.open(f"http://127.0.0.1:{server.server_port}/") as r: print(r.status, r.read().decode())
server.shutdown()
