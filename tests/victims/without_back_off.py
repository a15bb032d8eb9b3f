"""``rocsteady`` that does not wait after quick crashes, so that many restarts can be tested."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

from rocsteady.cli import run
from rocsteady.cli.main import main
from rocsteady.run.attempt_settings import Settings

if __name__ == "__main__":
    setattr(run, "Settings", partial(Settings, quick_crash=timedelta(0)))  # noqa: B010 - not typed
    main()
