"""An image of the host's own Python, for engines that want one: the same files that a box of ours shows.

``archive(path)`` writes it as ``docker save`` would, so that no registry, daemon or network is needed to load it.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile

NAME = "kern-bench:latest"
_TOOLS = ("sh", "bash", "true", "env", "cat", "sleep", "mkdir", "rm")
_RUNTIMES = (
    "libdl.so.2", "libgcc_s.so.1", "libm.so.6", "libpthread.so.0", "librt.so.1", "libstdc++.so.6",
    "libutil.so.1", "libz.so.1",
)  # fmt: skip
"""What the extensions of packages load besides, as far as the host has it."""
_LEFT_OUT = re.compile(r"/(test|idlelib|ensurepip|site-packages|dist-packages)(/|$)")
_LINKS = ("bin", "lib", "lib32", "lib64", "sbin")
_PASSWD = b"root:x:0:0:root:/root:/bin/sh\n"
_GROUP = b"root:x:0:\n"


def libraries(files: list[str]) -> set[str]:
    """The shared libraries that ``files`` load, as ldd names them."""
    told = subprocess.run(["ldd", *files], capture_output=True, text=True, check=False).stdout
    return set(re.findall(r"(/\S+\.so\S*) \(0x", told))


def python() -> str:
    """The interpreter outside any virtual environment."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


def contents() -> dict[str, str]:
    """Place in the image to the host file or directory that is put there."""
    library = sysconfig.get_path("stdlib", vars={"base": sys.base_prefix, "installed_base": sys.base_prefix})
    extensions = os.path.join(library, "lib-dynload")
    tools = [found for found in map(shutil.which, _TOOLS) if found]
    programs = [python(), *map(os.path.realpath, tools)]
    modules = [os.path.join(extensions, name) for name in os.listdir(extensions)]
    loaded = libraries(programs + modules)
    system = os.path.dirname(next(path for path in loaded if "/libc.so" in path))
    runtimes = [f"{system}/{name}" for name in _RUNTIMES if os.path.exists(f"{system}/{name}")]
    found = {path: path for path in [*programs, library, *loaded, *runtimes]}
    found.update({tool: os.path.realpath(tool) for tool in tools})
    found["/usr/bin/python3"] = python()
    return {_placed(place): source for place, source in found.items()}


def _placed(path: str) -> str:
    """``path`` through the host's own links of directories such as /lib, which the image has too."""
    return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))


def layer() -> bytes:
    """The image's one layer, as a tar."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", dereference=True) as tar:
        for name in ("etc", "dev", "proc", "root", "sys", "tmp", "usr", "workspace"):
            tar.addfile(_entry(name, tarfile.DIRTYPE))
        for name in _LINKS:
            if os.path.islink(f"/{name}"):
                link = _entry(name, tarfile.SYMTYPE)
                link.linkname = os.readlink(f"/{name}")
                tar.addfile(link)
        for name, text in (("etc/passwd", _PASSWD), ("etc/group", _GROUP)):
            entry = _entry(name, tarfile.REGTYPE)
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text))
        for place, source in sorted(contents().items()):
            tar.add(source, place.lstrip("/"), filter=_plain)
    return buffer.getvalue()


def _entry(name: str, kind: bytes) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = kind, 0o644 if kind == tarfile.REGTYPE else 0o755
    return entry


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if _LEFT_OUT.search(entry.name):
        return None
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    return entry


def archive(path: str) -> None:
    """Write the image to ``path``."""
    blob = layer()
    config = {
        "architecture": {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine),
        "os": "linux",
        "config": {"Env": ["PATH=/usr/local/bin:/usr/bin:/bin"], "Cmd": ["/usr/bin/python3"]},
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(blob).hexdigest()]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [NAME], "Layers": ["layer.tar"]}]
    parts = {
        "layer.tar": blob,
        "config.json": json.dumps(config).encode(),
        "manifest.json": json.dumps(manifest).encode(),
    }
    with tarfile.open(path, "w") as tar:
        for name, data in parts.items():
            entry = _entry(name, tarfile.REGTYPE)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
