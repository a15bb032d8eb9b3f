"""The faults of a drill, as a person writes them: ``hang:backward@200,oom@350,oom:aten::mm@40``."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from rocsteady_train.inside import wire

from rocsteady.model import Value

KINDS = ("hang", "oom", "fault", "kill", "segv", "abort", "nan")
STEP, BACKWARD, LOADER = "step", "backward", "loader"
PLACES = (BACKWARD, LOADER, STEP)  # of a hang
HIGHEST = 10**12
_WRITTEN = re.compile(r"(?P<kind>[a-z]+)(?::(?P<place>[A-Za-z0-9_:.]+))?@(?P<at>[0-9]+)")
_OPERATOR = re.compile(r"[A-Za-z_]\w*::[A-Za-z_]\w*(\.\w+)?", re.ASCII)


class Fault(Value, frozen=True, kw_only=True):
    """What is to go wrong, where, and when."""

    kind: str
    place: str  # one of PLACES, or an operator
    at: int  # the step, or the call of the operator
    spelt: str  # as it was written


def read_faults(text: str) -> tuple[Fault, ...]:
    """Read what a person wrote; raises ValueError with a sentence."""
    faults = tuple(_fault(word.strip()) for word in text.split(",") if word.strip())
    if not faults:
        raise ValueError("name at least one fault, such as kill@50")
    return faults


def not_tried(faults: Sequence[Fault]) -> tuple[str, ...]:
    """Name what a drill can bring about and this one did not."""
    tried = {(fault.kind, fault.place) for fault in faults}
    kinds = {fault.kind for fault in faults}
    hangs = [f"hang:{place}" for place in PLACES if ("hang", place) not in tried]
    return (*hangs, *(kind for kind in KINDS if kind != "hang" and kind not in kinds))


def for_inside(faults: Sequence[Fault], *, before: int, folder: Path) -> str:
    """Spell them for the training process, which has so many steps from its checkpoint."""
    ordered = [{"kind": fault.kind, "place": fault.place, "at": fault.at} for fault in faults]
    return json.dumps(
        {
            "version": wire.FAULTS_VERSION,
            "before": before,
            "folder": str(folder),
            "faults": ordered,
        }
    )


def _fault(word: str) -> Fault:
    written = _WRITTEN.fullmatch(word)
    if written is None:
        raise ValueError(f"{word!r} is not a fault; write it as kill@500 or hang:backward@200")
    kind, place, at = written["kind"], written["place"], int(written["at"])
    if kind not in KINDS:
        raise ValueError(f"unknown fault {kind!r}; known faults: {', '.join(KINDS)}")
    if not 0 < at <= HIGHEST:
        raise ValueError(f"{word!r}: steps and calls are counted from 1")
    if place is None:
        place = BACKWARD if kind == "nan" else STEP
    elif not (_OPERATOR.fullmatch(place) or (kind == "hang" and place in PLACES)):
        hangs = f" A hang can also be in {', '.join(PLACES)}." if kind == "hang" else ""
        raise ValueError(f"{word!r}: {place!r} is not an operator such as aten::mm.{hangs}")
    return Fault(kind=kind, place=place, at=at, spelt=word)
