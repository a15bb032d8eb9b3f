"""The figures that the documentation states, on texts that were never looked at for it."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

LOGS = Path(__file__).parents[1] / "logs"


@cache
def scores() -> dict[str, dict[str, Any]]:
    command = [sys.executable, str(LOGS / "score.py"), "--json"]
    told = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    found: dict[str, dict[str, Any]] = json.loads(told.stdout)
    return found


def test_there_are_enough_texts() -> None:
    tuning, held_out, healthy = (scores()[part] for part in ("tuning", "held-out", "healthy"))

    assert tuning["texts"] + held_out["texts"] >= 150
    assert tuning["whole"] + held_out["whole"] >= 60
    assert held_out["texts"] >= 50
    assert healthy["texts"] >= 40


@pytest.mark.parametrize(
    ("part", "precision", "named"), [("tuning", 0.97, 0.9), ("held-out", 0.95, 0.8)]
)
def test_failures_are_named_right(part: str, precision: float, named: float) -> None:
    assert scores()[part]["precision"] >= precision
    assert scores()[part]["share_named"] >= named


def test_nothing_is_named_in_healthy_output() -> None:
    assert scores()["healthy"]["named"] == 0
