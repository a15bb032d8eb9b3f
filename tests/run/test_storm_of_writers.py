"""Several who save in one folder, each killed or hung at random: nobody loses what it wrote.

    python tests/run/test_storm_of_writers.py [ROUNDS] [SEED]

goes on for longer. Every writer notes the version that it is about to write, and the one that it
has written, outside the folder. torch is a stand-in, which saves files as the real one does.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

sys.path.append(str(Path(__file__).parents[1] / "victims"))
from supervised import ROCSTEADY, Project

pytestmark = pytest.mark.slow
WITHIN = 240.0
KINDS = ("two runs", "three runs", "a run and a sync", "a run and another training")
TORCH = {
    "torch/__init__.py": """
from torch.optim import optimizer
from torch import serialization
from torch.serialization import load, save
""",
    "torch/optim/__init__.py": "",
    "torch/optim/optimizer.py": """
import types
before, after = [], []
register_optimizer_step_pre_hook, register_optimizer_step_post_hook = before.append, after.append
def step():
    for hook in before + after:
        hook(types.SimpleNamespace(param_groups=[]), (), {})
""",
    "torch/serialization.py": """
import pickle, zipfile
def save(saved, path):
    size = saved.pop("size")
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("archive/data.pkl", pickle.dumps(saved, 2))
        with file.open("archive/data/0", "w") as blob:
            for _ in range(size):
                blob.write(bytes(1 << 20))
        file.writestr("archive/version", "3")
def load(path):
    with zipfile.ZipFile(path) as file:
        return pickle.loads(file.read("archive/data.pkl"))
""",
}
# What an own checkpoint looks like; how it is saved, and how the script ends, is by a seed.
TRAINS = """
import json, os, random, signal, sys, threading, time
import torch
from torch.optim import optimizer

NOTE, SEED, KEEPS = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "keeps"
starts = int(open(NOTE + ".starts").read()) + 1 if os.path.exists(NOTE + ".starts") else 1
open(NOTE + ".starts", "w").write(str(starts))
chance = random.Random(SEED * 100 + starts)

def note(what, version):
    with open(NOTE + ".part", "w") as file:
        json.dump({what: version, "whole": last}, file)
    os.replace(NOTE + ".part", NOTE)

last = done = 0
if os.path.exists("NAME"):
    state = torch.load("NAME")
    weights, optim = state["model"], state["optimizer"]
    holder = type("Optimizer", (), {"load_state_dict": lambda self, state: None})
    optimizer_state = holder()
    optimizer_state.load_state_dict(state["optimizer"])
    done, last = state["step"], state["version"]
every = chance.uniform(0.2, 2.0)
fails = chance.uniform(1.0, 6.0) if starts <= 2 else None
began = saved = time.monotonic()
step = done
while KEEPS or step < 500:
    step += 1
    optimizer.step()
    time.sleep(0.01)
    now = time.monotonic()
    if now - saved > every or (step == 500 and not KEEPS):
        saved, version = now, time.time_ns()
        note("begun", version)
        state = {"model": {}, "optimizer": {"state": {}, "param_groups": []}, "step": step,
                 "version": version, "size": chance.randint(1, 50)}
        if chance.random() < 0.5:
            torch.save(state, "NAME")
        else:
            torch.save(state, "NAME.tmp")
            os.replace("NAME.tmp", "NAME")
        last = version
        note("done", version)
    if fails and last and now - began > fails and not KEEPS:
        if chance.random() < 0.5:
            os.kill(os.getpid(), signal.SIGKILL)
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()
print("done")
"""
SYNCS = """
import json, os, random, sys, time
chance = random.Random(int(sys.argv[2]))
last = 0
while True:
    version = time.time_ns()
    with open(sys.argv[1] + ".part", "w") as file:
        json.dump({"begun": version, "whole": last}, file)
    os.replace(sys.argv[1] + ".part", sys.argv[1])
    with open("NAME", "wb") as file:
        file.write(str(version).encode().ljust(32))
        file.write(bytes(chance.randint(1, 50) << 20))
    last = version
    time.sleep(chance.uniform(0.2, 2.0))
"""


class Storm(NamedTuple):
    """What came of one round."""

    kind: str
    wrong: list[str]
    restarts: int


def version_of(path: Path) -> int | None:
    """Return which version of its owner a file is; None if it is not whole."""
    try:
        with path.open("rb") as file:
            head = file.read(32)
        if head[:2] != b"PK":
            return int(head)
        with zipfile.ZipFile(path) as archive:
            text = archive.read("archive/data.pkl")
    except (OSError, ValueError, zipfile.BadZipFile, KeyError):
        return None
    import pickle  # noqa: PLC0415 - of our own script

    return int(pickle.loads(text)["version"])  # noqa: S301


class Writers:
    """All that write in one folder in one round."""

    def __init__(self, project: Project, seed: int) -> None:
        self.kind = KINDS[seed % len(KINDS)]
        self.wrong: list[str] = []
        self.runs: dict[str, subprocess.Popen[bytes]] = {}
        self._project = project
        self._others: list[subprocess.Popen[bytes]] = []
        self._notes = project.folder.parent / "notes"
        self._notes.mkdir()
        for name, text in TORCH.items():
            project.script(text, f"../theirs/{name}")
        chance = random.Random(seed)  # noqa: S311
        self.names = [f"m{number}.pt" for number in range(3 if self.kind == "three runs" else 2)]
        for name in self.names:
            self._start(name, str(chance.randint(0, 1 << 30)))

    def _start(self, name: str, seed: str) -> None:
        is_run = name == self.names[0] or self.kind in KINDS[:2]
        source = SYNCS if self.kind == "a run and a sync" and not is_run else TRAINS
        script = self._project.script(source.replace("NAME", name), f"{name}.py")
        kept = "ends" if is_run else "keeps"
        command = [sys.executable, script, str(self._notes / name), seed, kept]
        theirs = str(self._project.folder.parent / "theirs")
        with (self._project.folder / f"{name}.log").open("wb") as log:
            child = subprocess.Popen(
                [*ROCSTEADY, "run", "--yes", "--", *command] if is_run else command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._project.folder,
                env={**self._project.environment, "PYTHONPATH": theirs},
                start_new_session=True,
            )
        self._project.started.append(child)
        if is_run:
            self.runs[name] = child
        else:
            self._others.append(child)

    def _noted(self, name: str, what: str) -> int:
        note = self._notes / name
        return int(json.loads(note.read_text()).get(what, 0)) if note.exists() else 0

    def look(self) -> None:
        """See whether a file is older than its owner's last write before this look."""
        for name in self.names:
            whole = self._noted(name, "whole")
            found = version_of(self._project.folder / name)
            if found is not None and found < whole:
                self.wrong.append(f"{name} is of {found}, and was written at {whole}")

    def end(self) -> int:
        """End the others, look at what is there, and return how often runs have resumed."""
        for child in self._others:
            if child.poll() is not None:
                self.wrong.append("another writer was ended")
            child.kill()
            child.wait()
        resumed = 0
        for name in self.names:
            path = self._project.folder / name
            if not path.exists():
                self.wrong.append(f"{name} is missing")
            if name in self.runs:
                log = (self._project.folder / f"{name}.log").read_text()
                resumed += log.count("rocsteady: resumed")
                found, last = version_of(path), self._noted(name, "done")
                if self.runs[name].returncode or found != last:
                    self.wrong.append(f"{name} is of {found}, and its last is {last}: {log}")
        moved = [path for path in self._project.folder.rglob("*") if "started-over" in path.name]
        self.wrong += [f"{path} was moved" for path in moved]
        return resumed


def storm(project: Project, seed: int) -> Storm:
    """Let several write in one folder until the runs among them are done."""
    writers = Writers(project, seed)
    deadline = time.monotonic() + WITHIN
    while any(child.poll() is None for child in writers.runs.values()):
        writers.look()
        if time.monotonic() > deadline:
            writers.wrong.append("not done in time")
            break
        time.sleep(0.05)
    resumed = writers.end()
    return Storm(writers.kind, writers.wrong, resumed)


@pytest.mark.parametrize("seed", range(len(KINDS)))
def test_nobody_loses_what_it_wrote(project: Project, seed: int) -> None:
    ended = storm(project, seed)

    assert ended.wrong == []


def main() -> None:
    """Print what came of each round."""
    rounds, seed = (int(word) for word in (*sys.argv[1:], "100", "1000")[:2])
    counts: Counter[str] = Counter()
    for number in range(seed, seed + rounds):
        folder = Path(tempfile.mkdtemp(prefix="storm-"))
        project = Project(folder)
        try:
            ended = storm(project, number)
        finally:
            project.close()
            shutil.rmtree(folder, ignore_errors=True)
        counts["rounds"] += 1
        counts["wrong"] += bool(ended.wrong)
        counts["restarts"] += ended.restarts
        told = f"{number} {ended.kind} {ended.restarts} {ended.wrong or 'ok'} {dict(counts)}\n"
        sys.stdout.write(told)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
