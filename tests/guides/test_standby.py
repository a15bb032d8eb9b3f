"""Attempts of the frameworks' trainers from a standby are as those started ordinarily."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

if sys.platform != "linux":
    pytest.skip("a standby is of Linux", allow_module_level=True)

from standby_kinds import TRAINERS
from standbys import compare

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", TRAINERS)
def test_a_trainer_cannot_tell(tmp_path: Path, frameworks_python: str, name: str) -> None:
    compare(TRAINERS[name], tmp_path, frameworks_python)
