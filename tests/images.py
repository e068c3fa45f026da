"""Images as tests make them: layers, an OCI layout in memory, archives of it, and a registry that follows a script."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import importlib
import io
import json
import platform
import sys
import tarfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Callable

from support import need

MACHINE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"


def gzipped(content: bytes) -> bytes:
    """The same bytes for the same content."""
    return gzip.compress(content, 1, mtime=0)


def zstd_packed(content: bytes) -> bytes:
    """Packed by the library that this Python reads zstd with."""
    name = "compression.zstd" if sys.version_info >= (3, 14) else "zstandard"
    try:
        packer: Any = importlib.import_module(name)
    except ImportError:
        need(False, f"the package {name} is not installed")
        raise
    return bytes(packer.compress(content))


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


class Member(tarfile.TarInfo):
    """An entry with its content."""

    data: bytes = b""


def member(name: str, content: bytes | str = b"", *, kind: bytes = tarfile.REGTYPE, **more: Any) -> Member:
    """One entry."""
    entry = Member(name)
    entry.type = kind
    entry.mode = 0o755 if kind == tarfile.DIRTYPE else 0o644
    data = content.encode() if isinstance(content, str) else content
    entry.size = len(data)
    for attribute, value in more.items():
        setattr(entry, attribute, value)
    entry.data = data
    return entry


def folder(name: str) -> Member:
    return member(name, kind=tarfile.DIRTYPE)


def symlink(name: str, target: str) -> Member:
    return member(name, kind=tarfile.SYMTYPE, linkname=target)


def hard_link(name: str, target: str) -> Member:
    return member(name, kind=tarfile.LNKTYPE, linkname=target)


def layer(*entries: Member) -> bytes:
    """A plain layer."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for entry in entries:
            archive.addfile(entry, io.BytesIO(entry.data))
    return out.getvalue()


def tree_layer(root: Path) -> bytes:
    """A directory as a layer."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for path in sorted(root.iterdir()):
            archive.add(path, path.name)
    return out.getvalue()


@dataclass
class Built:
    """One image: its blobs by digest, and its manifest."""

    blobs: dict[str, bytes]
    manifest: bytes
    config: bytes
    layers: list[bytes]

    @property
    def digest(self) -> str:
        return digest(self.manifest)


def build(*layers: bytes, pack: Callable[[bytes], bytes] = gzipped, **config: Any) -> Built:
    """An image of plain layers, packed by ``pack``; ``config`` goes into its configuration."""
    packed = [pack(each) for each in layers]
    about = {
        "os": "linux", "architecture": config.pop("architecture", MACHINE), "config": config,
        "rootfs": {"type": "layers", "diff_ids": [digest(each) for each in layers]},
    }  # fmt: skip
    text = json.dumps(about).encode()
    manifest = {
        "schemaVersion": 2, "mediaType": MANIFEST,
        "config": _described(text, "application/vnd.oci.image.config.v1+json"),
        "layers": [_described(each, LAYER) for each in packed],
    }  # fmt: skip
    return Built({digest(each): each for each in (text, *packed)}, json.dumps(manifest).encode(), text, packed)


def _described(content: bytes, kind: str) -> dict[str, Any]:
    return {"mediaType": kind, "digest": digest(content), "size": len(content)}


def index(images: Mapping[str, Built]) -> bytes:
    """An index; the keys are architectures."""
    entries = [
        {**_described(image.manifest, MANIFEST), "platform": {"os": "linux", "architecture": machine}}
        for machine, image in images.items()
    ]
    return json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}).encode()


def oci_archive(path: Path, image: Built, tag: str = "") -> str:
    """Write ``image`` as ``oci-archive:``; its reference."""
    entry = _described(image.manifest, MANIFEST)
    if tag:
        entry["annotations"] = {"org.opencontainers.image.ref.name": tag}
    files = {f"blobs/sha256/{name[7:]}": content for name, content in image.blobs.items()}
    files[f"blobs/sha256/{image.digest[7:]}"] = image.manifest
    files["index.json"] = json.dumps({"schemaVersion": 2, "manifests": [entry]}).encode()
    files["oci-layout"] = b'{"imageLayoutVersion": "1.0.0"}'
    return f"oci-archive:{_write(path, files)}"


def docker_archive(path: Path, image: Built, tag: str) -> str:
    """Write ``image`` as docker save does; its reference."""
    names = [f"{number}/layer.tar" for number in range(len(image.layers))]
    files = dict(zip(names, image.layers))
    config = f"{digest(image.config)[7:]}.json"
    files[config] = image.config
    files["manifest.json"] = json.dumps([{"Config": config, "RepoTags": [tag], "Layers": names}]).encode()
    return f"docker-archive:{_write(path, files)}"


def _write(path: Path, files: Mapping[str, bytes]) -> Path:
    path.write_bytes(layer(*(member(name, content) for name, content in files.items())))
    return path


# --- a registry that follows a script ---------------------------------------------------------------------------


@dataclass
class Answer:
    """What is sent; ``cut`` bytes of the body only, and then silence (``hang``) or the end of the connection."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: int | None = None
    hang: bool = False


@dataclass
class Asked:
    """One request as it came."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


Script = Callable[[Asked], Answer]


class Scripted:
    """A loopback registry; ``script`` answers, ``asked`` has what came."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.asked: list[Asked] = []
        self.closing = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                outer.answer(self, Asked(self.command, self.path, dict(self.headers), body))

            do_POST = do_GET  # noqa: N815 - named by the standard library

            def log_message(self, *_: object) -> None:
                """Tests read ``asked``."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.host = f"127.0.0.1:{self.server.server_address[1]}"

    def answer(self, handler: BaseHTTPRequestHandler, asked: Asked) -> None:
        self.asked.append(asked)
        answer = Answer() if asked.path == "/v2/" else self.script(asked)
        handler.send_response(answer.status)
        for name, value in {"Content-Length": str(len(answer.body)), **answer.headers}.items():
            handler.send_header(name, value)
        handler.end_headers()
        with contextlib.suppress(OSError):
            handler.wfile.write(answer.body[: answer.cut])
            handler.wfile.flush()
        if answer.hang:
            self.closing.wait(60)

    def paths(self) -> list[str]:
        """What was asked for, without the first question of all."""
        return [asked.path for asked in self.asked if asked.path != "/v2/"]


@contextlib.contextmanager
def scripted(script: Script) -> Iterator[Scripted]:
    made = Scripted(script)
    thread = threading.Thread(target=made.server.serve_forever, args=(0.01,), daemon=True, name="test-registry")
    thread.start()
    try:
        yield made
    finally:
        made.closing.set()
        made.server.shutdown()
        made.server.server_close()
        thread.join()


def shelf(image: Built, tags: Sequence[str] = ("v1",)) -> Script:
    """A registry with one image, which answers everything well."""

    def script(asked: Asked) -> Answer:
        name = asked.path.rpartition("/")[2]
        if "/manifests/" in asked.path and name in (*tags, image.digest):
            return Answer(body=image.manifest, headers={"Content-Type": MANIFEST})
        content = image.blobs.get(name)
        return missing() if content is None else Answer(body=content)

    return script


def missing(message: str = "manifest unknown", code: str = "MANIFEST_UNKNOWN") -> Answer:
    """404 in a registry's own words."""
    return refusal(404, message, code)


def refusal(status: int, message: str, code: str, **headers: str) -> Answer:
    body = json.dumps({"errors": [{"code": code, "message": message}]}).encode()
    return Answer(status, body, {name.replace("_", "-"): value for name, value in headers.items()})
