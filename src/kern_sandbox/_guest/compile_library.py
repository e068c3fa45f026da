"""The program of the box that prepares an image: bytecode for its standard library, where it comes without.

Usage: ``python3 compile_library.py DIRECTORY [MODE]``, below which each file lies at its own path. It is valid whatever
the time of its source is, for the image never changes; with the MODE ``TIMESTAMP``, as long as its source does not
change. Stdlib only, Python 3.8 or later.
"""

import importlib.util
import os
import py_compile
import sys
import sysconfig

# Not imported by programs, or not of the standard library.
PASSED_OVER = frozenset(
    (
        "__pycache__", "dist-packages", "ensurepip", "idlelib", "lib2to3", "pydoc_data", "site-packages", "test",
        "tests", "tkinter", "turtledemo",
    )
)  # fmt: skip


def missing(library: str) -> "list[str]":
    """The sources below ``library`` that have no bytecode for this interpreter."""
    found = []
    for place, folders, files in os.walk(library):
        folders[:] = sorted(name for name in folders if name not in PASSED_OVER and not name.startswith("config-"))
        paths = [os.path.join(place, name) for name in sorted(files) if name.endswith(".py")]
        found += [path for path in paths if not os.path.exists(importlib.util.cache_from_source(path))]
    return found


def compile_all(sources: "list[str]", target: str, mode: py_compile.PycInvalidationMode) -> None:
    """Write the bytecode of each source; one that does not compile has none, as everywhere."""
    for source in sources:
        cache = importlib.util.cache_from_source(source)
        py_compile.compile(source, target + cache, source, invalidation_mode=mode, quiet=2)


def main(target: str, name: str = "UNCHECKED_HASH") -> None:
    """Share the work among as many processes as there are processors."""
    mode = py_compile.PycInvalidationMode[name]
    sources = missing(os.path.realpath(sysconfig.get_path("stdlib")))
    count = max(1, min(8, len(os.sched_getaffinity(0)), len(sources) // 20))
    children = []
    for number in range(1, count):
        pid = os.fork()
        if pid == 0:
            compile_all(sources[number::count], target, mode)
            os._exit(0)
        children.append(pid)
    compile_all(sources[::count], target, mode)
    for pid in children:
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
