# Uses a local socket in the workspace.
#> b'ping'
import os, socket
s = socket.socket(socket.AF_UNIX); s.bind("s.sock"); s.listen()
c = socket.socket(socket.AF_UNIX); c.connect("s.sock"); c.send(b"ping")
print(s.accept()[0].recv(10))
os.unlink("s.sock")
