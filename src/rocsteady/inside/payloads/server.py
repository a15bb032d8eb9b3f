"""What is started for payloads: runs one and ends, or forks many."""

from __future__ import annotations

import json

from .experiment import run_one


def main(arguments: list[str]) -> None:
    """``serve ADDRESS``, or ``one REQUEST``."""
    if arguments[0] == "serve":
        from .forks import Server  # type: ignore[attr-defined, unused-ignore]  # noqa: PLC0415

        Server(arguments[1]).serve()
    else:
        run_one(json.loads(arguments[1]))
