"""Runs a script that crashes, and goes on from a standby."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from side_by_side import OURS, Ended, SideBySide, left_behind
from standby_kinds import Kind
from torch_stand_in import stand_in_torch

WITHIN = "60"  # seconds, for a standby to be ready
WITHOUT = "6"  # seconds within which one that is not wanted would have been started
# Attempts are killed after a few steps, and before the last one once its standby is ready.
CRASHES = """
    def crash_if_asked(file=__import__("os").path.abspath("crashes")):
        import glob, os, signal, time
        with open(file) as stream: left = int(stream.read())
        if not left: return
        with open(file, "w") as stream: stream.write(str(left - 1))
        import torch
        if hasattr(torch, "nn"):
            net = torch.nn.Linear(8, 1)
            optimizer = torch.optim.AdamW(net.parameters())
        else:
            net, optimizer = None, torch.optim.optimizer  # a stand-in
        run, _, number = os.path.dirname(os.environ["ROCSTEADY_PAGES"]).rpartition("-")
        ready = f"{run}-{int(number) + 1}-standby/pages/*.ready"
        early = int(number) <= 3
        end = time.monotonic() + (0.2 if early else float(os.environ.get("SECONDS", 90)))
        while time.monotonic() < end and not glob.glob(ready):
            if net: net(torch.ones(2, 8)).mean().backward()
            optimizer.step()
            time.sleep(0.05)
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGKILL)
"""


class Standbys:
    """Runs a script bare, and under us with a standby after the fourth crash."""

    def __init__(self, folder: Path) -> None:
        self.runs = SideBySide(folder)
        self.runs.within = 600  # five attempts

    def watched(self, *command: str, stdin: bytes = b"", **more: str) -> Ended:
        """Run it below us, and let it crash four times."""
        (self.runs.folder / "crashes").write_text("4")
        return self.run(*command, options=("--max-attempts", "5"), stdin=stdin, **more)

    def ordinary(self, *command: str, stdin: bytes = b"", **more: str) -> Ended:
        """Run it below us, and let nothing crash."""
        (self.runs.folder / "crashes").write_text("0")
        return self.run(*command, options=("--max-attempts", "1"), stdin=stdin, **more)

    def run(
        self, *command: str, options: tuple[str, ...], stdin: bytes = b"", **more: str
    ) -> Ended:
        watching = self.runs.watching(*options, "--resume", "never")
        ended = self.runs.bare(*watching, *command, stdin=stdin, **more)
        assert left_behind(self.runs.name) == []
        return ended._replace(err=OURS.sub(b"", ended.err))

    @property
    def notes(self) -> list[str]:
        shown = self.runs.bare(*self.runs.rocsteady, "report", "--json", self.runs.name)
        return [text for text in _texts(json.loads(shown.out)) if "standby" in text]

    @property
    def used(self) -> int:
        return sum(note.startswith("restarted from a standby") for note in self.notes)


def compare(kind: Kind, folder: Path, python: str) -> None:
    """Run a kind of script ordinarily and from a standby; it must come to the same."""
    standbys = Standbys(folder)
    for place in ("train.py", "my scripts/my train.py"):
        standbys.runs.script(CRASHES + kind.script, place)
    for place, text in kind.files.items():
        standbys.runs.script(text, place)
    variables = {**kind.variables, "SECONDS": WITHIN if kind.used else WITHOUT}
    if not kind.real:
        theirs = [stand_in_torch(standbys.runs), variables.get("PYTHONPATH", "")]
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, reversed(theirs)))
        python = sys.executable
    command = (python, *kind.words)

    ordinary = standbys.ordinary(*command, stdin=kind.stdin, **variables)
    ended = standbys.watched(*command, stdin=kind.stdin, **variables)

    assert standbys.used == kind.used, standbys.notes
    assert ended == ordinary, standbys.notes
    assert ended.code in kind.codes, ended


def _texts(value: object) -> list[str]:
    if isinstance(value, dict):
        return [text for each in value.values() for text in _texts(each)]
    if isinstance(value, list):
        return [text for each in value for text in _texts(each)]
    return [value] if isinstance(value, str) else []
