"""``rocsteady`` that does not wait after quick crashes, so that many restarts can be tested."""

from __future__ import annotations

from datetime import timedelta

from hurried import hurry

from rocsteady.cli import run
from rocsteady.cli.main import main
from rocsteady.run.options import Timing

if __name__ == "__main__":
    hurry(run, Timing(quick_crash=timedelta(0), back_off=timedelta(0)))
    main()
