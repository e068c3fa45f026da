"""Attacks and honest snippets, run on the engine and on other targets and judged from outside: ``kern-sandbox eval``.

They lie below ``cases/``: one folder a family, with a manifest ``claims.json`` and one plain file a case.
"""

from __future__ import annotations

from ._main import evaluate

__all__ = ["evaluate"]
