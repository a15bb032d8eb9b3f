"""Runs a command twice, bare and under ``rocsteady run``, and tells what was left behind."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

WITHIN = 120  # seconds; a run that takes longer is stuck
OURS = re.compile(rb"^rocsteady: [^\n]*\n", re.MULTILINE)
ADDED = {
    "PYTHONPATH",
    "ROCSTEADY_BETWEEN_FAILURES",
    "ROCSTEADY_PAGES",
    "ROCSTEADY_RUN",
    "ROCSTEADY_SUPERVISOR",
}

# torch 2.13's gloo ranks do this at their exit now and then, bare ones too (1 of 34 tries here).
ABORTED = b"terminate called without an active exception"
TRIES = 10

_numbers = itertools.count()


class HasErr(Protocol):
    @property
    def err(self) -> bytes:
        """What was written there."""


Aborts = TypeVar("Aborts", bound=HasErr)


class Ended(NamedTuple):
    code: int  # as a shell says it
    out: bytes
    err: bytes  # without our lines


def not_aborted(run: Callable[[], Aborts]) -> Aborts:
    """Run ranks again if torch itself aborted them at their exit: nothing follows from that."""
    ended = run()
    for _ in range(TRIES):
        if ABORTED not in ended.err:
            break
        ended = run()
    return ended


class SideBySide:
    """Two folders that are alike, and a name for each watched run."""

    def __init__(self, folder: Path, rocsteady: tuple[str, ...] | None = None) -> None:
        self.folder = folder / "work"
        self.folder.mkdir()
        self.home = folder / "home"
        self.home.mkdir()
        self.rocsteady = rocsteady or (sys.executable, "-m", "rocsteady")
        self.environment = {"PATH": "/usr/bin:/bin", "HOME": str(self.home), "LANG": "C.UTF-8"}
        self.said: list[str] = []  # by us, in the last watched run
        self.name = ""  # of the last watched run
        self.within = WITHIN

    def script(self, text: str, name: str = "train.py") -> str:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return str(path)

    def watching(self, *options: str) -> list[str]:
        """Give the command line before the command itself, with a name of its own."""
        self.name = f"nh-{os.getpid()}-{next(_numbers)}"
        return [*self.rocsteady, "run", "--name", self.name, *options, "--"]

    def bare(self, *command: str, stdin: bytes = b"", **more: str) -> Ended:
        return self._run(list(command), stdin, more)

    def watched(self, *command: str, stdin: bytes = b"", **more: str) -> Ended:
        """Run it once below us; nothing may be left of it."""
        ended = self._run([*self.watching("--max-attempts", "1"), *command], stdin, more)
        self.said = [line.decode().strip() for line in OURS.findall(ended.err)]
        assert left_behind(self.name) == []
        return ended._replace(err=OURS.sub(b"", ended.err))

    def both(self, *command: str, stdin: bytes = b"", **more: str) -> Ended:
        """Run it both ways; it must come to the same."""
        bare = self.bare(*command, stdin=stdin, **more)
        watched = self.watched(*command, stdin=stdin, **more)
        assert watched == bare
        return watched

    def told(self, *command: str, **more: str) -> tuple[Any, Any]:
        """Run what prints one JSON value both ways, and return both values."""
        bare = self.bare(*command, stdin=b"", **more)
        watched = self.watched(*command, stdin=b"", **more)
        assert (bare.code, bare.err, watched.code, watched.err) == (0, b"", 0, b"")
        return json.loads(bare.out), json.loads(watched.out)

    def story(self) -> dict[str, Any]:
        """Return the last watched run as ``rocsteady status --json`` lists it."""
        listed = self._run([*self.rocsteady, "status", "--json"], b"", {})
        assert listed.code == 0, listed.err
        (found,) = [
            line for line in json.loads(listed.out)["runs"] if line["run"]["name"] == self.name
        ]
        return dict(found)

    def _run(self, command: list[str], stdin: bytes, more: Mapping[str, str]) -> Ended:
        done = subprocess.run(
            command,
            input=stdin,
            env={**self.environment, **more},
            cwd=self.folder,
            capture_output=True,
            check=False,
            timeout=self.within,
        )
        return Ended(as_a_shell(done.returncode), done.stdout, done.stderr)


def as_a_shell(code: int) -> int:
    """Say the end of a child as a shell does."""
    return code if code >= 0 else 128 - code


def left_behind(name: str) -> list[str]:
    """Find what is still there of a run: shared memory, processes."""
    left = [str(path) for path in Path("/dev/shm").glob(f"rocsteady-{name}*")]
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if f"ROCSTEADY_RUN={name}-".encode() in environ.read_bytes():
                left.append((environ.parent / "cmdline").read_text().replace("\0", " "))
    return left
