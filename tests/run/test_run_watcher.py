"""What ``watch`` shows of a log."""

from __future__ import annotations

import pytest

from rocsteady.run.run_watcher import line_with_time


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ("step 3", "14:02:59 step 3"),
        ("14:02:59 step 3", "14:02:59 step 3"),
        ("[2026-11-17 15:02:59] step 3", "[2026-11-17 15:02:59] step 3"),
    ],
)
def test_a_line_of_the_log_has_one_time(printed: str, shown: str) -> None:
    assert line_with_time(f"2026-11-17T14:02:59.123Z {printed}") == shown
