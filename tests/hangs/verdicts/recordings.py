"""Recordings of real runs: all that the verdicts were made of, and what the verdicts were.

`tests/victims/recorded.py` writes one file for each attempt. This puts a folder of them into one:

    python tests/hangs/verdicts/recordings.py FOLDER tests/hangs/recordings/NAME.json.xz

The answers in it are those of the code that runs this: look at them before they are committed.
"""

from __future__ import annotations

import gzip
import lzma
import re
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec

from rocsteady.doctor.knowledge.waits import load_waits
from rocsteady.hangs.judgment.judgment import begin, judge, occupied, withdrawn
from rocsteady.hangs.judgment.verdict import Patience, Verdict
from rocsteady.hangs.values import Heartbeat, Output, Snapshot, Tick
from rocsteady.model import Value
from rocsteady.store.values import PhaseHistory

BEFORE = 2  # ticks before the first snapshot: nothing is decided without one
_HANDLERS = re.compile(rb'"handlers":\[[^\]]*\]')
_OWN_HANDLER = b",23"
_FOLDER = re.compile(rb"(?:/tmp/)?\bc-[a-z0-9_]{8}/")  # of a case, named at random


class Event(Value, frozen=True, kw_only=True):
    """One call of the judgment: a tick, or what was done between ticks."""

    at: float
    kind: str = "tick"  # or "withdrawn" (then ``at`` is how long was waited), or "occupied"
    ahead: float = 0.0  # of the boot clock
    counters: int = 0
    alive: bool = True
    heartbeats: int = 0  # their place in the recording
    first: int = 0  # the snapshots that were given, by their place
    last: int = 0


class Answer(Value, frozen=True, kw_only=True):
    """What the code decided, so many ticks in a row."""

    ticks: int
    condition: str
    closed: bool
    place: str
    culprit: int | None
    limit: float | None
    blame: str  # why some ranks are blamed
    ranks: tuple[int, ...]  # that are blamed


class Recording(Value, frozen=True, kw_only=True):
    """One attempt."""

    name: str
    apart: bool
    learned: PhaseHistory | None
    patience: Patience
    heartbeats: tuple[tuple[Heartbeat, ...], ...]
    snapshots: tuple[Snapshot, ...]
    events: tuple[Event, ...]
    answers: tuple[Answer, ...] = ()


def load(path: Path) -> list[Recording]:
    """Read a file of recordings. In those, rocsteady had a handler of SIGURG in each training."""
    content = lzma.decompress(path.read_bytes())
    content = _HANDLERS.sub(lambda found: found[0].replace(_OWN_HANDLER, b""), content)
    return msgspec.json.decode(content, type=list[Recording])


def save(recordings: list[Recording], path: Path) -> None:
    """Write a file of recordings."""
    path.write_bytes(lzma.compress(msgspec.json.encode(recordings), preset=9 | lzma.PRESET_EXTREME))


def replay(recording: Recording) -> tuple[Answer, ...]:
    """Return what the code decides today."""
    waits, verdicts = load_waits(), []
    start = recording.events[0]
    pulse = begin(start.at, start.at + start.ahead, recording.learned, apart=recording.apart)
    for event in recording.events:
        if event.kind == "withdrawn":
            pulse = withdrawn(pulse, event.at)
        elif event.kind == "occupied":
            pulse = occupied(pulse, event.at)
        else:
            tick = Tick(
                at=event.at,
                boot=event.at + event.ahead,
                heartbeats=recording.heartbeats[event.heartbeats],
                output=Output(counters=event.counters),
                alive=event.alive,
            )
            snapshots = recording.snapshots[event.first : event.last]
            pulse, verdict = judge(pulse, tick, snapshots, recording.patience, waits)
            verdicts.append(_answer(verdict))
    return tuple(
        msgspec.structs.replace(answer, ticks=len(list(same))) for answer, same in groupby(verdicts)
    )


def _answer(verdict: Verdict) -> Answer:
    return Answer(
        ticks=1,
        condition=verdict.condition.value,
        closed=verdict.waits is not None and verdict.waits.closed,
        place=verdict.place,
        culprit=verdict.culprit,
        limit=None if verdict.limit is None else round(verdict.limit, 3),
        blame=verdict.blame.sign.value if verdict.blame else "",
        ranks=tuple(record.rank for record in verdict.blame.ranks) if verdict.blame else (),
    )


def read_attempt(path: Path) -> Recording | None:
    """Read what the recorder wrote of one attempt; None if no snapshot was taken."""
    return from_lines(map(msgspec.json.decode, _lines(path)))


def from_lines(lines: Iterator[dict[str, Any]]) -> Recording | None:
    """Put the lines of a recorder together, from shortly before the first snapshot on."""
    header: dict[str, Any] = {}
    patience: dict[str, Any] = {}
    heartbeats: list[Any] = [()]
    snapshots: list[dict[str, Any]] = []
    events: list[Event] = []
    for line in lines:
        if "begin" in line:
            header = line["begin"]
        elif "patience" in line:
            patience = line["patience"]
        elif "snapshot" in line:
            snapshots.append(line["snapshot"])
        elif "tick" in line:
            if line["heartbeats"] is not None:
                heartbeats.append(line["heartbeats"])
            events.append(_event(line, len(heartbeats) - 1, snapshots))
        else:
            kind = next(kind for kind in ("withdrawn", "occupied") if kind in line)
            events.append(Event(at=line[kind], kind=kind))
    if not snapshots:
        return None
    first = next(number for number, event in enumerate(events) if event.last)
    events = events[max(0, first - BEFORE) :]
    skipped = min(event.heartbeats for event in events if event.kind == "tick")
    events = [msgspec.structs.replace(it, heartbeats=it.heartbeats - skipped) for it in events]
    return Recording(
        name=header["name"],
        apart=header["apart"],
        learned=msgspec.convert(header["learned"], PhaseHistory | None),
        patience=msgspec.convert(patience, Patience),
        heartbeats=msgspec.convert(heartbeats[skipped:], tuple[tuple[Heartbeat, ...], ...]),
        snapshots=msgspec.convert(snapshots, tuple[Snapshot, ...]),
        events=tuple(events),
    )


def _event(line: dict[str, Any], heartbeats: int, snapshots: list[dict[str, Any]]) -> Event:
    given, places = line["snapshots"], {it["at"]: place for place, it in enumerate(snapshots)}
    return Event(
        at=line["tick"]["at"],
        ahead=line["tick"]["boot"] - line["tick"]["at"],
        counters=line["tick"]["output"]["counters"],
        alive=line["tick"]["alive"],
        heartbeats=heartbeats,
        first=places[given[0]] if given else 0,
        last=places[given[-1]] + 1 if given else 0,
    )


def _lines(path: Path) -> Iterator[bytes]:
    """Yield whole lines; the recorder may have been ended while it wrote."""
    try:
        with gzip.open(path) as file:
            yield from (_FOLDER.sub(b"case/", line) for line in file if line.endswith(b"\n"))
    except EOFError:
        return


if __name__ == "__main__":
    attempts = (read_attempt(path) for path in sorted(Path(sys.argv[1]).glob("*.gz")))
    save(
        [msgspec.structs.replace(it, answers=replay(it)) for it in attempts if it],
        Path(sys.argv[2]),
    )
