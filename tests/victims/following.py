"""``rocsteady`` with less patience, whose run follows a plan: as the script says, then the CPU."""

from __future__ import annotations

import runpy
from functools import partial
from pathlib import Path

from rocsteady.cli import run
from rocsteady.model import Strategy
from rocsteady.run.options import Fallback, RunOptions

CPU = Fallback(number=2, title="CPU, 2 threads", strategy=Strategy(device="cpu"), rate=100.0)

if __name__ == "__main__":
    setattr(run, "RunOptions", partial(RunOptions, fallbacks=(CPU,)))  # noqa: B010 - not typed
    runpy.run_path(str(Path(__file__).with_name("hurried.py")), run_name="__main__")
