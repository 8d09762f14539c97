"""The fixture ``dwell``, which pytest finds by itself where this package is installed."""

from __future__ import annotations

from typing import Iterator

import pytest

from .testing import Broker, broker


@pytest.fixture(name="dwell")
def _dwell() -> Iterator[Broker]:
    """A broker of this test alone, whose time the test moves: ``dwell.advance("30d")``."""
    with broker() as running:
        yield running
