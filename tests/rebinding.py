"""A host of its own for a test of egress: a network namespace with a name server that changes its mind.

Started by ``unshare --user --map-root-user --mount --net``. What it prints is one JSON object a line.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading

PUBLIC = "93.184.215.14"  # a route makes it lead back here, without being an address of this machine
A = 1


class Names:
    """A name server: each look-up takes the next answer of its name."""

    def __init__(self, answers: dict[str, list[list[str]]]) -> None:
        self.answers = answers
        self.asked: list[str] = []
        self.now: list[str] = []
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.bind(("127.0.0.1", 53))
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self) -> None:
        while True:
            data, client = self.sock.recvfrom(512)
            self.sock.sendto(self.answer(data), client)

    def answer(self, data: bytes) -> bytes:
        end = data.index(b"\0", 12)
        name, at = [], 12
        while at < end:
            name.append(data[at + 1 : at + 1 + data[at]].decode())
            at += 1 + data[at]
        kind = int.from_bytes(data[end + 1 : end + 3], "big")
        found = [packed for packed in self.next(".".join(name), kind) if len(packed) == (4 if kind == A else 16)]
        rows = b"".join(b"\xc0\x0c" + data[end + 1 : end + 5] + bytes(4) + bytes([0, len(row)]) + row for row in found)
        return data[:2] + b"\x81\x80\0\1" + len(found).to_bytes(2, "big") + bytes(4) + data[12 : end + 5] + rows

    def next(self, name: str, kind: int) -> list[bytes]:
        """What ``name`` has now. A resolver asks for A first: that is a new look-up, and the AAAA after it the same."""
        if kind == A:
            self.asked.append(name)
            answers = self.answers.get(name, [])
            self.now = answers.pop(0) if answers else []
        return [socket.inet_pton(socket.AF_INET6 if ":" in each else socket.AF_INET, each) for each in self.now]


class Target:
    """A server at every address of this host, which tells each client at which one it was reached."""

    def __init__(self) -> None:
        self.reached: list[str] = []
        self.sock = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
        self.port: int = self.sock.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self) -> None:
        while True:
            client, _ = self.sock.accept()
            with client:
                place = client.getsockname()[0].replace("::ffff:", "")
                self.reached.append(place)
                client.sendall(place.encode())


def become_a_host() -> None:
    """Addresses, and a configuration of the resolver, that only this process and those below it see."""
    for words in ("link set lo up", f"route add local {PUBLIC}/32 dev lo src 127.0.0.1"):
        subprocess.run(["ip", *words.split()], check=True)
    for path, content in (("/etc/resolv.conf", "nameserver 127.0.0.1\n"), ("/etc/nsswitch.conf", "hosts: dns\n")):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(content)
            file.flush()
            os.chmod(file.name, 0o644)
            subprocess.run(["mount", "--bind", file.name, os.path.realpath(path)], check=True)


def main() -> None:
    """Make the host, and ask for each name in ``sys.argv[2]`` from a box, as often as it has answers."""
    sys.path.insert(0, sys.argv[1])
    answers: dict[str, list[list[str]]] = json.loads(sys.argv[2])
    calls = {name: len(given) for name, given in answers.items()}
    become_a_host()
    import kern_sandbox

    names, target = Names(answers), Target()
    code = f"""
import socket
def ask(name):
    with socket.create_connection(('127.1.0.1', 3128), 20) as s:
        s.sendall(f'CONNECT {{name}}:{target.port} HTTP/1.1\\r\\n\\r\\n'.encode())
        said = b''
        while piece := s.recv(4096): said += piece
        return said.split()[1].decode() + ' ' + said.rpartition(b'\\r\\n\\r\\n')[2].decode()[:15]
"""
    with kern_sandbox.Sandbox(egress_allow=[f"{name}:{target.port}" for name in calls]) as sandbox:
        for name, times in calls.items():
            names.asked.clear()
            target.reached.clear()
            result = sandbox.run_code(f"{code}\nfor _ in range({times}): print(ask({name!r}))", timeout_s=60)
            told = {
                "name": name, "said": result.stdout.splitlines(), "reached": target.reached, "asked": len(names.asked),
                "reasons": sorted({event.reason for event in result.egress}), "stderr": result.stderr[-300:],
            }  # fmt: skip
            sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
