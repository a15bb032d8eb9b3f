"""``rocsteady`` with less patience, so that a hang costs a test few seconds."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

from rocsteady.cli import run
from rocsteady.cli.main import main
from rocsteady.pulse.verdict import Patience
from rocsteady.supervisor.settings import Settings

PATIENCE = Patience(
    suspect_after=timedelta(seconds=2),
    sample_span=timedelta(seconds=1.5),
    stuck_after=timedelta(seconds=4),
)

if __name__ == "__main__":
    hurried = partial(Settings, quick_crash=timedelta(0))
    setattr(run, "Settings", lambda **wanted: hurried(**{**wanted, "patience": PATIENCE}))  # noqa: B010 - not typed
    main()
