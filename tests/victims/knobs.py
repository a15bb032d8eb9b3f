"""What a test may set, through the environment. No torch here: some victims do without."""

from __future__ import annotations

import os

SPEED = float(os.environ.get("VICTIM_SPEED", "1"))  # long pauses are divided by this
STEPS = int(os.environ.get("VICTIM_STEPS", "150"))  # steady steps before something happens
STEP_SECONDS = float(os.environ.get("VICTIM_STEP_MS", "20")) / 1000


def lasting(seconds: float) -> float:
    """Give how long a pause of so many seconds lasts in this run."""
    return seconds / SPEED
