"""The picture of the rooms is the one that the import contracts give."""

from __future__ import annotations

import runpy
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def test_the_picture_is_drawn_from_the_contracts_of_today() -> None:
    script = runpy.run_path(str(DOCS / "architecture_picture.py"))

    kept = (DOCS / "pictures/architecture.svg").read_text(encoding="utf-8")

    assert script["drawn"]() == kept, "python docs/architecture_picture.py"
    assert all(f">{room}</text>" in kept for layer in script["layers"]() for room in layer)
