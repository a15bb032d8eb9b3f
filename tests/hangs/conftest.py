"""Real processes in the state that a test asks for, and nothing of them left afterwards."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from rocsteady_train.inside import wire

from rocsteady.hangs.looking.process_tree import processes

VICTIMS = Path(__file__).parents[1] / "victims"


class Victim(NamedTuple):
    root: int
    run_id: str
    pid: int  # the process that is in the wanted state
    waits_for: tuple[int, ...]
    tree: Callable[[], tuple[int, ...]]  # its living processes


Start = Callable[..., Victim]


def _started(command: list[str]) -> tuple[subprocess.Popen[bytes], Victim]:
    run_id = uuid.uuid4().hex
    child = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, wire.RUN: run_id},
        start_new_session=True,
    )
    assert child.stdout is not None
    told = json.loads(child.stdout.readline())
    waits_for = tuple(sorted(told["waits_for"]))
    tree = partial(processes, child.pid, run_id)
    return child, Victim(child.pid, run_id, told["pid"], waits_for, tree)


def _ended(child: subprocess.Popen[bytes], tree: Callable[[], tuple[int, ...]]) -> None:
    deadline = time.monotonic() + 10
    while living := tree():
        assert time.monotonic() < deadline, f"left behind: {living}"
        for pid in living:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        child.poll()
        time.sleep(0.01)
    child.communicate()


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a victim, by state or by its whole command, and wait until it says that it is there."""
    running: list[tuple[subprocess.Popen[bytes], Callable[[], tuple[int, ...]]]] = []

    def start_one(*state_or_command: str) -> Victim:
        command = list(state_or_command)
        if len(command) == 1:
            command = [sys.executable, str(VICTIMS / "evidence_waits.py"), *command]
        child, victim = _started(command)
        running.append((child, victim.tree))
        return victim

    yield start_one
    for child, tree in running:
        _ended(child, tree)


@pytest.fixture(scope="session")
def victims() -> str:
    return str(VICTIMS)
