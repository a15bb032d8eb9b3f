"""Copies at another place: complete or not named, and looked at before they are used."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.name == "nt", reason="addresses of files are those of POSIX"),
]


def test_copies_elsewhere(cases: Callable[[str], dict[str, str]]) -> None:
    assert cases("elsewhere.py") == {}
