"""A fault in one of those who look at an attempt costs that one, and is named."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rocsteady.run.attempt.watchers import Watchers
from rocsteady.run.telling.announcer import Announcer

SCRIPT = """
import time
for step in range(1, 16):
    print(f"step {step}/15", flush=True)
    time.sleep(0.1)
"""
# One of those who look at a run fails, another one counts the samples.
FAULTY = """
from rocsteady.cli.main import main
from rocsteady.run.loop import Supervisor
from rocsteady.run.run_end import RunEnd
from rocsteady.run.telling.deadline_monitor import DeadlineMonitor

def fails(self, seen):
    raise ValueError("of one watcher")

def counts(self, sample):
    with open("samples", "a") as stream:
        stream.write("x")

RunEnd.look = counts
{faulty} = fails
main()
"""


class Said(Announcer):
    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)


def test_a_watcher_that_fails_is_dropped_alone_and_named() -> None:
    seen: list[tuple[str, int]] = []

    def fails(sample: int) -> None:
        seen.append(("forecast", sample))
        raise ValueError("no pace")

    announcer = Said()
    watchers = Watchers[int](
        announcer,
        {
            "journal": lambda sample: seen.append(("journal", sample)),
            "forecast": fails,
            "stop rules": lambda sample: seen.append(("stop rules", sample)),
        },
    )
    for sample in (1, 2, 3):
        watchers.look(sample)

    others = [(name, sample) for sample in (1, 2, 3) for name in ("journal", "stop rules")]
    assert [each for each in seen if each[0] != "forecast"] == others
    assert seen.count(("forecast", 1)) == 1
    assert len(seen) == len(others) + 1
    assert len(announcer.lines) == 1
    assert "forecast" in announcer.lines[0]
    assert "no pace" in announcer.lines[0]


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("faulty", ["DeadlineMonitor.seen", "Supervisor._leaves"])
def test_a_fault_in_one_watcher_of_a_run_leaves_the_others(faulty: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    run = ["run", "--", sys.executable, "train.py"]
    ended = subprocess.run(
        [sys.executable, "-c", FAULTY.format(faulty=faulty), *run],
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )

    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.count("ValueError: of one watcher") == 1
    assert len((tmp_path / "samples").read_text()) >= 3
