"""The program of a template: boots the interpreter, serves, and runs a snippet in each process forked from it.

It is a script: the fork server puts it beside the guest's files, and the engine's library where it looks for it.
"""

import sys

BASELINE = frozenset(sys.modules)

sys.path.insert(0, "/.box/lib")
from kern_sandbox._box.plan import CELL  # noqa: E402
from kern_sandbox._forkserver.template import become_fresh, hide, serve, take_environment  # noqa: E402

del sys.path[0]
from run_once import load  # type: ignore[import-not-found]  # noqa: E402  # it lies beside this script

cell, ending = load("cell"), load("ending")
kept = hide(BASELINE)


def get_ready() -> object:
    """Everything that a snippet needs, except the snippet."""
    become_fresh()
    return cell.Ready(f"{CELL}/main.py", load)


snippet = serve(3, 4, get_ready)
take_environment(snippet.env)
if snippet.path == "-":
    load("keeper").keep(snippet.results_fd, load)
ending.run_to_the_end(lambda: cell.run_file(snippet.path, snippet.results_fd, load, snippet.ready))
