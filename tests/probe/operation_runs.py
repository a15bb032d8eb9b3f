"""Runs a script with the recorder in it, as a probe does, and returns what that left."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

import msgspec
from rocsteady_train.inside import wire

from rocsteady.probe.experiment import Order
from rocsteady.probe.recorded_operations import (
    ComparedNumbers,
    Operation,
    Origin,
    read_compared,
    read_in_flight,
    read_origin,
)
from rocsteady.run.attempt.injection import lay_out

HERE = Path(__file__).parent
MODELS, STAGED = HERE / "models.py", HERE / "staged"
IN_ONE_OPERATION = 4.0  # seconds, after which it hangs
WITHIN = 240.0


class Recorded(NamedTuple):
    code: int | None  # None: it hung, and was killed
    operation: Operation | None  # in flight at the end
    origin: Origin | None
    numbers: ComparedNumbers | None
    notes: str
    out: str


def record(  # noqa: PLR0913 - all are keyword arguments
    python: str,
    folder: Path,
    *words: str,
    fault: dict[str, object] | None = None,
    keep: str = "",
    numbers: dict[str, int] | None = None,
    path: tuple[Path, ...] = (STAGED,),
) -> Recorded:
    place = folder / f"pages-{time.monotonic_ns()}"
    place.mkdir()
    injection = lay_out(place)
    order = Order(keep=keep, folder=str(folder), numbers=numbers)
    theirs = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
    environment = {
        **theirs,
        **injection.environment(theirs, run_id="recorded", supervisor=os.getpid()),
        wire.RECORD: msgspec.json.encode(order).decode(),
    }
    if fault is not None:
        environment["ROCSTEADY_STAGED_FAULT"] = json.dumps(fault)
    with (place / "out").open("wb") as out:
        child = subprocess.Popen(
            [python, *words], env=environment, stdout=out, stderr=subprocess.STDOUT, cwd=folder
        )
    deadline = time.monotonic() + WITHIN
    code: int | None = None
    while (code := child.poll()) is None and time.monotonic() < deadline:
        time.sleep(0.05)
        flying = read_in_flight(injection.pages)
        if flying and flying[-1].seconds > IN_ONE_OPERATION:
            break
    flying = read_in_flight(injection.pages)
    child.kill()
    child.wait(10)
    return Recorded(
        code=code,
        operation=flying[0].operation if flying else None,
        origin=read_origin(injection.pages),
        numbers=read_compared(injection.pages),
        notes="".join(each.read_text() for each in injection.pages.glob("*.note")),
        out=(place / "out").read_text(errors="replace"),
    )
