"""What the tests of egress share as a fixture."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from egress_help import Keep, closing_all

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def keep() -> Iterator[Keep]:
    with closing_all() as keep:
        yield keep
