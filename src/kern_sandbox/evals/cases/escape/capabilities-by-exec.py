# Executes a program as the box's root, which would fill the sets again.
program = f"""
import socket
place = socket.socket(socket.AF_UNIX)
place.connect({("/workspace/" if os.path.isdir("/workspace") else "") + stage["meeting"]!r})
place.send(b"here"); place.recv(9)
"""
subprocess.run([sys.executable, "-c", program])
