"""``rocsteady`` with less patience, whose run follows a plan: as the script says, then the CPU.

FOLLOWING_WITHIN, FOLLOWING_FAILURES and FOLLOWING_LEAST are the rule for leaving the first.
"""

from __future__ import annotations

import os
import runpy
from functools import partial
from pathlib import Path

from rocsteady.cli import run
from rocsteady.model import Strategy
from rocsteady.run.options import Fallback, RunOptions, StopRule

CPU = Fallback(number=2, title="CPU, 2 threads", strategy=Strategy(device="cpu"), rate=100.0)


def stop_rule() -> StopRule | None:
    if "FOLLOWING_WITHIN" not in os.environ:
        return None
    return StopRule(
        within=float(os.environ["FOLLOWING_WITHIN"]),
        failures=int(os.environ["FOLLOWING_FAILURES"]),
        least=float(os.environ["FOLLOWING_LEAST"]),
    )


if __name__ == "__main__":
    options = partial(RunOptions, fallbacks=(CPU,), stop=stop_rule())
    setattr(run, "RunOptions", options)  # noqa: B010 - not typed
    runpy.run_path(str(Path(__file__).with_name("hurried.py")), run_name="__main__")
