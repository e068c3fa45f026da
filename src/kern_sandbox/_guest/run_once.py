"""The program of a box that runs one file: ``python3 run_once.py CODE_PATH RESULTS_FD``; ``-`` is a kernel's box.

A script is compiled anew in every process, a module only where there is no bytecode of it yet: so this does no more
than load `cell`. Stdlib only, Python 3.8 or later.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

HERE = os.path.dirname(os.path.abspath(__file__))


def load(name: str) -> "ModuleType":
    """A neighbour of this file, as a module that ``sys.modules`` does not list: the names there are the code's."""
    path = os.path.join(HERE, name + ".py")
    module = type(sys)("kern_guest." + name)
    module.__file__ = path
    loader = sys.modules["_frozen_importlib_external"].SourceFileLoader(module.__name__, path)
    exec(loader.get_code(module.__name__), vars(module))
    return module


if __name__ == "__main__":
    if sys.argv[1] == "-":
        load("keeper").keep(int(sys.argv[2]), load)
    load("cell").run_file(sys.argv[1], int(sys.argv[2]), load)
