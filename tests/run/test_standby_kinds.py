"""Attempts from a standby are as those started ordinarily, whatever kind of script it is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

if sys.platform != "linux":
    pytest.skip("a standby is of Linux", allow_module_level=True)

from standby_kinds import KINDS
from standbys import compare

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", KINDS)
def test_a_script_cannot_tell(tmp_path: Path, torch_python: str, name: str) -> None:
    compare(KINDS[name], tmp_path, torch_python)
