"""What is decided in 1,000 generated histories is as recorded; the first 50 are legible."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from tests.run.decisions.driver import decisions
from tests.run.decisions.histories import COUNT, case

if TYPE_CHECKING:
    from tests.conftest import Expected, Recorded

RECORDED = Path(__file__).parent / "recorded.jsonl"
LEGIBLE = 50


def test_what_is_decided_is_what_was_recorded(recorded: Recorded, expected: Expected) -> None:
    lines = []
    for number in range(COUNT):
        history = case(number)
        decided = decisions(history, recorded.machine(history.machine), recorded.knowledge)
        text = json.dumps(decided, separators=(",", ":"))
        lines.append(text if number < LEGIBLE else sha256(text.encode()).hexdigest()[:16])

    expected(RECORDED, "\n".join(lines) + "\n")
