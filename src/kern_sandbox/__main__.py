"""``python -m kern_sandbox`` is the command ``kern-sandbox``."""

from __future__ import annotations

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
