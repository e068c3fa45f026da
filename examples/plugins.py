"""Runs plug-ins that strangers wrote, over the program's own records, and trusts none of what they say.

A plug-in is a Python file with a function ``transform(record)``, which takes and gives a dict. It runs in a kernel of
its own: loaded once, called for each record, with a deadline and a limit of memory. What it gives back is JSON that is
checked; a plug-in that fails, hangs or lies loses its turn, and the record goes on as it was.

    python examples/plugins.py PLUGIN.py...
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import kern_sandbox as kern

Record = dict[str, Any]
RECORDS: list[Record] = [{"name": "Ada", "age": 36}, {"name": "Grace", "age": 85}]


class PluginFailed(Exception):
    """The plug-in did not give what was asked of it; the text says how."""


class Plugin:
    """One plug-in in a box of its own; its state lives as long as this object."""

    def __init__(self, name: str, source: str) -> None:
        self.name = name
        self._sandbox = kern.Sandbox(memory_mb=128, pids=16, timeout_s=3)
        self._sandbox.write_file("plugin.py", source)
        self._kernel: kern.Kernel | None = None

    def transform(self, record: Record) -> Record:
        """What the plug-in makes of a record.

        Raises:
            PluginFailed: it raised, hung, or gave something else than a dict of plain JSON.
        """
        if self._kernel is None or not self._kernel.alive:
            self._kernel = self._sandbox.kernel()
            self._cell("import json, sys; sys.path.insert(0, '/workspace'); from plugin import transform")
        result = self._cell(f"print(); print(json.dumps(transform(json.loads({json.dumps(record)!r}))))")
        return checked(result)

    def _cell(self, code: str) -> kern.ExecutionResult:
        assert self._kernel is not None
        result = self._kernel.run_code(code)
        if result.fault:
            raise PluginFailed(result.fault.message)
        if result.exit_code:
            raise PluginFailed(kern.neutralise(result.code_stderr.strip().rpartition("\n")[2]))
        return result

    def close(self) -> None:
        """End its box."""
        self._sandbox.close()


def checked(result: kern.ExecutionResult) -> Record:
    """The record on a cell's last line: the plug-in could have put anything there."""
    try:
        value = json.loads(result.stdout.splitlines()[-1])
    except (IndexError, ValueError, RecursionError):
        raise PluginFailed("it gave no JSON") from None
    if not isinstance(value, dict) or set(value) - {"name", "age", "tags"} or not isinstance(value.get("name"), str):
        raise PluginFailed("it gave something that is no record")
    return value


def run(plugins: list[Plugin], records: list[Record]) -> list[Record]:
    """Every record through every plug-in."""
    done = []
    for record in records:
        current = record
        for plugin in plugins:
            try:
                current = plugin.transform(current)
            except PluginFailed as error:
                print(f"{plugin.name} on {record['name']}: {error}")
        done.append(current)
    return done


def main() -> None:
    """Run the plug-ins that are named over the records."""
    plugins = [Plugin(Path(name).stem, Path(name).read_text(encoding="utf-8")) for name in sys.argv[1:]]
    try:
        print(json.dumps(run(plugins, RECORDS)))
    finally:
        for plugin in plugins:
            plugin.close()


if __name__ == "__main__":
    main()
