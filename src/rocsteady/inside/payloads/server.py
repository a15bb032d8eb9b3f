"""What is started for payloads: runs one and ends, or forks many."""

from __future__ import annotations

import json
import sys
from typing import Any

from . import trial


def payload_named(name: str) -> Any:
    """Return a payload by "module:function"; modules are those beside this one."""
    module, _, function = name.partition(":")
    if not (module.isidentifier() and function.isidentifier()):
        raise ValueError(name)
    package = __name__.rpartition(".")[0]
    __import__(f"{package}.{module}")
    return getattr(sys.modules[f"{package}.{module}"], function)


def run_one(request: dict[str, Any]) -> None:
    """Run one payload here."""
    trial.carry_out(payload_named(request["payload"]), request)


def main(arguments: list[str]) -> None:
    """``serve ADDRESS``, or ``one REQUEST``."""
    if arguments[0] == "serve":
        from .forks import Server  # type: ignore[attr-defined, unused-ignore]  # noqa: PLC0415

        Server(arguments[1]).serve()
    else:
        run_one(json.loads(arguments[1]))
