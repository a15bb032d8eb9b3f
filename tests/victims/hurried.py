"""``rocsteady`` with less patience, so that hangs and look-alikes cost a test few seconds.

Every duration that is waited for is divided by HURRY; what is compared with what stays the same.
"""

from __future__ import annotations

from datetime import timedelta
from types import ModuleType

import msgspec

from rocsteady.cli import run
from rocsteady.cli.main import main
from rocsteady.hangs.judgment.verdict import Patience
from rocsteady.run.options import Timing
from rocsteady.system.child_end import Stopping

HURRY = 2.5
OURS = ("tick_gap",)  # is about our own ticks
USUAL = Patience()
PATIENCE = msgspec.structs.replace(
    USUAL,
    **{
        name: value / HURRY
        for name in USUAL.__struct_fields__
        if isinstance(value := getattr(USUAL, name), timedelta) and name not in OURS
    },
)
TIMING = Timing(
    patience=PATIENCE,
    quick_crash=timedelta(0),
    stopping=Stopping(save_wait=timedelta(seconds=6)),
    continue_after=Timing().continue_after / HURRY,
    continue_unattended_after=Timing().continue_after / HURRY,
)


def hurry(command: ModuleType, timing: Timing = TIMING) -> None:
    options = getattr(command, "RunOptions")  # noqa: B009 - not typed
    setattr(command, "RunOptions", lambda **given: options(**{**given, "timing": timing}))  # noqa: B010


if __name__ == "__main__":
    hurry(run)
    main()
