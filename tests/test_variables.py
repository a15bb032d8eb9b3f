"""Every variable of rocsteady's own is documented, and none that does not exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
NAME = re.compile(r"(?<!_)ROCSTEADY_[A-Z_]+")
QUOTED = re.compile(r"[\"'](ROCSTEADY_[A-Z_]+)[\"']")


def test_the_reference_lists_every_variable() -> None:
    sources = (ROOT / "packages").rglob("*.py")
    used = {name for path in sources for name in QUOTED.findall(path.read_text(encoding="utf-8"))}
    page = (ROOT / "docs" / "reference" / "commands.md").read_text(encoding="utf-8")

    assert set(NAME.findall(page)) == used
