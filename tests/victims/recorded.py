"""``rocsteady`` with a recorder: writes down all that its verdicts are made of, to be replayed.

    ROCSTEADY_RECORD_TO=FOLDER python tests/victims/recorded.py run -- python train.py

One file of JSON lines for each attempt: how it began, each tick, each snapshot.
`corpus.py --rocsteady` takes a program that does this; `tests/hangs/verdicts/recordings.py` reads
the files.
"""

from __future__ import annotations

import gzip
import os
import time
from pathlib import Path
from typing import Any

import msgspec

from rocsteady.cli.main import main
from rocsteady.run.attempt import attempt as watching

FOLDER = Path(os.environ.get("ROCSTEADY_RECORD_TO", "."))
NAME = os.environ.get("ROCSTEADY_RECORD_NAME", "")  # of the victim


class Recorder:
    """Takes the place of what an attempt calls, and calls it."""

    def __init__(self) -> None:
        attempt: Any = watching
        self._real = {name: getattr(attempt, name) for name in _REPLACED}
        self._files: list[gzip.GzipFile] = []
        self._written: set[float] = set()  # the snapshots that are in the file
        self._last: dict[str, object] = {}
        for name in _REPLACED:
            setattr(attempt, name, getattr(self, name))

    def begin(self, at: float, boot: float, learned: object = None, *, apart: bool = False) -> Any:  # noqa: ANN401
        name = f"{int(time.time() * 1000)}-{os.getpid()}.jsonl.gz"
        self._files.append(gzip.GzipFile(FOLDER / name, "wb"))
        self._written, self._last = set(), {}
        self._put(begin={"name": NAME, "learned": learned, "apart": apart})
        return self._real["begin"](at, boot, learned, apart=apart)

    def judge(self, pulse: Any, tick: Any, snapshots: Any, patience: Any, waits: Any) -> Any:  # noqa: ANN401
        for snapshot in snapshots:
            if snapshot.at not in self._written:
                self._written.add(snapshot.at)
                self._put(snapshot=snapshot)
        if new := self._changed("patience", patience):
            self._put(patience=new)
        self._put(
            tick=msgspec.structs.replace(tick, heartbeats=()),
            heartbeats=self._changed("heartbeats", tick.heartbeats),
            snapshots=[snapshot.at for snapshot in snapshots],
        )
        if snapshots or not tick.alive:
            self._files[-1].flush()  # the run may be killed
        return self._real["judge"](pulse, tick, snapshots, patience, waits)

    def withdrawn(self, pulse: object, waited: float) -> Any:  # noqa: ANN401
        self._put(withdrawn=waited)
        return self._real["withdrawn"](pulse, waited)

    def occupied(self, pulse: object, at: float) -> Any:  # noqa: ANN401
        self._put(occupied=at)
        return self._real["occupied"](pulse, at)

    def _changed(self, name: str, value: object) -> object:
        """Return a value, or None where it is as it was."""
        if self._last.get(name) == value:
            return None
        self._last[name] = value
        return value

    def _put(self, **line: object) -> None:
        self._files[-1].write(msgspec.json.encode(line) + b"\n")


_REPLACED = ("begin", "judge", "withdrawn", "occupied")

if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    Recorder()
    main()
