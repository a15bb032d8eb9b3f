"""``--detach``: the same command again, in a session of its own, without this terminal."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from rocsteady.host.detached import start_detached


def detach(arguments: list[str]) -> int:
    """Start it and come back."""
    words = [word for word in arguments if word != "--detach"]
    environment = {**os.environ, "ROCSTEADY_DETACHED": "1"}
    started = start_detached([sys.executable, "-m", "rocsteady", *words], environment, Path.cwd())
    click.echo(f"rocsteady: process {started.pid}, {started.how}. See it: rocsteady runs", err=True)
    return 0
