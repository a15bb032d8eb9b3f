"""A training that is interrupted in every way ends as one that is left alone, to the bit."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow


def _interruptions() -> Any:  # noqa: ANN401 - a module
    path = Path(__file__).with_name("interruptions.py")
    spec = importlib.util.spec_from_file_location("interruptions", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["interruptions"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.ci
def test_interruptions_of_all_kinds_change_nothing(torch_python: str) -> None:
    difference, done = _interruptions().compare(torch_python, seed=0, interruptions=5, epochs=3)
    assert difference == ""
    assert done.total() >= 4, done  # it may have come to its end before the last one
