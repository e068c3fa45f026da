"""File work inside the box: one request a line on standard input, one answer a line on standard output.

``{"id": N, "op": NAME, …}`` is answered by ``{"id": N, "ok": …}`` or ``{"id": N, "error": {"code", "message"}}``.
A search runs in a child of its own, which ``{"op": "cancel", "id": N}`` ends. Standard library only, Python 3.8 or
later. It is started as ``helper.py '{"protected": [PATH, …], "context": [PATH, …]}'``.
"""

import base64
import errno
import json
import os
import selectors
import signal
import stat
import sys

import search

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, NoReturn

SEARCHES = {"grep": search.grep, "find": search.find}


class Files:
    """What is asked about files. Paths are absolute.

    Args:
        protected: paths that are never written, nor anything below them. The box has them mounted read-only; this
            stands where the host has taken such a mount away.
        context: files that pi itself reads on the host, following links.
    """

    def __init__(self, protected: "List[str]", context: "List[str]") -> None:
        """Remember which context files are links now: those are the user's."""
        self.protected = protected
        self.context = context
        self.links = {path: os.readlink(path) for path in context if os.path.islink(path)}

    def work(self, asked: "Dict[str, Any]") -> "Dict[str, Any]":
        """Do what is asked by its name."""
        if asked["op"] not in ("read", "access", "write", "mkdir", "stat", "list", "sweep"):
            raise ValueError("there is no operation %r" % asked["op"])
        done: "Dict[str, Any]" = getattr(self, asked["op"])(asked)
        return done

    def read(self, asked: "Dict[str, Any]") -> "Dict[str, Any]":
        """A part of a regular file; ``size`` is that of the whole."""
        fd = os.open(asked["path"], os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            about = os.fstat(fd)
            if stat.S_ISDIR(about.st_mode):
                raise IsADirectoryError(errno.EISDIR, "illegal operation on a directory")
            if not stat.S_ISREG(about.st_mode):
                raise ValueError("not a regular file")
            file.seek(asked.get("offset", 0))
            data = file.read(asked["bytes"])
        return {"data": base64.b64encode(data).decode("ascii"), "size": about.st_size}

    def access(self, asked: "Dict[str, Any]") -> "Dict[str, Any]":
        """Raises unless it can be read, and written if that is asked."""
        os.stat(asked["path"])
        if asked.get("write"):
            self.require_free(asked["path"])
        if not os.access(asked["path"], os.R_OK | (os.W_OK if asked.get("write") else 0)):
            raise PermissionError(errno.EACCES, "permission denied")
        return {}

    def write(self, asked: "Dict[str, Any]") -> "Dict[str, Any]":
        """A whole file, new or in place of what it holds."""
        self.require_free(asked["path"])
        data = base64.b64decode(asked["data"], validate=True)  # before anything is cut off
        flags = os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC
        fd = os.open(asked["path"], flags, 0o666)
        with open(fd, "wb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise ValueError("not a regular file")
            os.ftruncate(fd, 0)
            file.write(data)
        return {}

    def mkdir(self, asked: "Dict[str, Any]") -> "Dict[str, Any]":
        """A directory and those above it."""
        if not os.path.isdir(asked["path"]):
            self.require_free(asked["path"])
            os.makedirs(asked["path"], exist_ok=True)
        return {}

    def stat(self, asked: "Dict[str, Any]") -> "Dict[str, Any]":
        """What is there."""
        return {"directory": stat.S_ISDIR(os.stat(asked["path"]).st_mode)}

    def list(self, asked: "Dict[str, Any]") -> "Dict[str, Any]":
        """Names in a directory, each with whether it is a directory; those that lead nowhere are left out."""
        with os.scandir(asked["path"]) as entries:
            return {"entries": [[entry.name, entry.is_dir()] for entry in entries if os.path.exists(entry.path)]}

    def sweep(self, _: "Dict[str, Any]") -> "Dict[str, Any]":
        """Remove each context file that code has made a link leading out of the workspace; their paths."""
        removed = [path for path in self.leaving() if os.readlink(path) != self.links.get(path)]
        for path in removed:
            os.unlink(path)
        return {"removed": removed}

    def leaving(self) -> "List[str]":
        """Context files that are links out of their directory."""
        links = [path for path in self.context if os.path.islink(path)]
        return [path for path in links if not os.path.realpath(path).startswith(os.path.dirname(path) + "/")]

    def require_free(self, path: str) -> None:
        """Raises for a protected path, by whatever links it is reached."""
        real = os.path.realpath(path)
        for kept in self.protected:
            if real == kept or real.startswith(kept + "/"):
                raise PermissionError(errno.EROFS, "it is protected: the box cannot change " + kept)


def failure(error: Exception) -> "Dict[str, str]":
    """An error for the host."""
    number = error.errno if isinstance(error, OSError) else None
    words = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return {"code": errno.errorcode.get(number or 0, "EINVAL"), "message": words}


def answer(work: "Callable[[Dict[str, Any]], Dict[str, Any]]", asked: "Dict[str, Any]") -> bytes:
    """Do what was asked, as a line."""
    try:
        told = {"id": asked["id"], "ok": work(asked)}
    except Exception as error:  # one bad request must not end the helper
        told = {"id": asked["id"], "error": failure(error)}
    return json.dumps(told).encode("ascii") + b"\n"


def send(data: bytes) -> None:
    """Write all of it to the host."""
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


class Loop:
    """Reads requests and what searches answer; ends with its input."""

    def __init__(self, files: Files) -> None:
        """Nothing asked yet."""
        self.files = files
        self.ready = selectors.DefaultSelector()
        self.ready.register(0, selectors.EVENT_READ)
        self.held = bytearray()
        self.searches: "Dict[int, Any]" = {}

    def run(self) -> None:
        """Serve until the host is gone."""
        while True:
            for key, _ in self.ready.select():
                if key.fd != 0:
                    self.hear(key.fd)
                elif not self.take():
                    return

    def take(self) -> bool:
        """What the host has sent; ``False`` at its end."""
        data = os.read(0, 1 << 20)
        self.held += data
        if b"\n" in data:
            *lines, rest = bytes(self.held).split(b"\n")
            self.held = bytearray(rest)
            for line in lines:
                self.serve(json.loads(line))
        return bool(data)

    def serve(self, asked: "Dict[str, Any]") -> None:
        """One request."""
        if asked["op"] == "cancel":
            self.cancel(asked["id"])
        elif asked["op"] in SEARCHES:
            self.search(asked)
        else:
            send(answer(self.files.work, asked))

    def search(self, asked: "Dict[str, Any]") -> None:
        """In a child: a pattern may take for ever, and another request must not wait for it."""
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            self.be_search(asked, writer)
        os.close(writer)
        self.searches[reader] = (pid, asked["id"], bytearray())
        self.ready.register(reader, selectors.EVENT_READ)

    def be_search(self, asked: "Dict[str, Any]", writer: int) -> "NoReturn":
        """The child."""
        try:
            os.setsid()
            with open(writer, "wb") as file:
                file.write(answer(SEARCHES[asked["op"]], asked))
        finally:
            os._exit(0)

    def hear(self, reader: int) -> None:
        """A part of an answer, or its end."""
        pid, number, held = self.searches[reader]
        data = os.read(reader, 1 << 20)
        held += data
        if data:
            return
        self.ready.unregister(reader)
        os.close(reader)
        del self.searches[reader]
        os.waitpid(pid, 0)
        lost = {"id": number, "error": {"code": "EINTR", "message": "the search was ended"}}
        send(bytes(held) if held.endswith(b"\n") else json.dumps(lost).encode("ascii") + b"\n")

    def cancel(self, number: int) -> None:
        """End a search; its answer is then that it was."""
        for pid, asked, _ in self.searches.values():
            if asked == number:
                for end in (os.killpg, os.kill):  # it may not lead its group yet
                    try:
                        end(pid, signal.SIGKILL)
                    except ProcessLookupError:
                        continue


if __name__ == "__main__":
    told = json.loads(sys.argv[1])
    os.umask(0o022)
    loop = Loop(Files(told["protected"], told["context"]))
    send(json.dumps({"id": 0, "ok": {"leaving": loop.files.leaving()}}).encode("ascii") + b"\n")
    loop.run()
