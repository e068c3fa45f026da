"""Parameters of a request: each is taken by name and type, and none may be left over."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, TypeVar

from .._rpc import RpcError

__all__ = ["INVALID_PARAMS", "Given"]

INVALID_PARAMS = -32602
_NAMES = {str: "a string", bool: "true or false", dict: "an object", list: "an array", int: "a whole number"}
T = TypeVar("T")


class Given:
    """What a client has sent with a request; ``null`` is the same as leaving a parameter out."""

    def __init__(self, params: Mapping[str, Any]) -> None:
        self._left = {name: value for name, value in params.items() if value is not None}
        self._taken: list[str] = []

    def need(self, name: str, kind: type[T]) -> T:
        """A parameter that has to be there.

        Raises:
            RpcError: it is not, or is of another type.
        """
        value = self.get(name, kind)
        if value is None:
            raise RpcError(INVALID_PARAMS, f"the parameter {name!r} is missing")
        return value

    def get(self, name: str, kind: type[T]) -> T | None:
        """A parameter that may be there.

        Raises:
            RpcError: it is of another type.
        """
        self._taken.append(name)
        value = self._left.pop(name, None)
        if value is not None and (not isinstance(value, kind) or (isinstance(value, bool) and kind is int)):
            raise RpcError(INVALID_PARAMS, f"the parameter {name!r} has to be {_NAMES.get(kind, kind.__name__)}")
        return value

    def any(self, name: str) -> Any:
        """A parameter that the library checks itself."""
        self._taken.append(name)
        return self._left.pop(name, None)

    def content(self, name: str) -> str | bytes | None:
        """Text under ``name``, or bytes under ``name_base64``.

        Raises:
            RpcError: it is both, or no base64.
        """
        text, data = self.get(name, str), self.get(f"{name}_base64", str)
        if text is not None and data is not None:
            raise RpcError(INVALID_PARAMS, f"{name} and {name}_base64 exclude each other")
        if data is None:
            return text
        try:
            return base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError) as error:
            raise RpcError(INVALID_PARAMS, f"{name}_base64 is not base64: {error}") from None

    def end(self) -> None:
        """All has been taken.

        Raises:
            RpcError: something is left that nobody knows.
        """
        for name in self._left:
            known = ", ".join(self._taken) or "none"
            raise RpcError(INVALID_PARAMS, f"there is no parameter {name[:80]!r} here: known are {known}")
