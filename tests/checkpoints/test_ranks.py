"""Several ranks write one checkpoint together, or none; any number of them reads it."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.name == "nt", reason="ranks are forked, and Windows ROCm has none"),
]


def test_ranks(cases: Callable[[str], dict[str, str]]) -> None:
    assert cases("ranks.py") == {}
