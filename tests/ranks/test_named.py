"""The rank that is stuck is named wherever a person looks, by a run of two ranks without torch."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

if sys.platform == "win32":
    pytest.skip("runs are of POSIX; Windows is unconfirmed", allow_module_level=True)

from supervised import Project

WITHIN = 240.0  # seconds, on a machine that has other things to do
RANK = """
    import os, sys, threading, time
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    from _rocsteady_inside import wire
    from _rocsteady_inside.heartbeat.heart import AFTER_TRAINING
    from _rocsteady_inside.heartbeat.hooks import heart
    from distributed.distributed_c10d import all_reduce

    def stuck():
        lock = threading.Lock()
        with lock:
            lock.acquire()

    def main():
        for step in range(1, 41):
            after = heart.begin(wire.OPTIMIZER, AFTER_TRAINING)
            heart.words[wire.W_STEP] = heart.steps = step
            heart.end(after)
            time.sleep(0.05)
        stuck() if os.environ["RANK"] == "1" else all_reduce()

    main()
"""
COLLECTIVE = """
    import threading

    def all_reduce():
        threading.Event().wait()
"""
LAUNCHER = """
    import os, subprocess, sys

    def start(rank):
        told = {**os.environ, "RANK": str(rank), "WORLD_SIZE": "2"}
        return subprocess.Popen([sys.executable, "rank.py"], env=told)

    sys.exit(max(each.wait() for each in [start(0), start(1)]))
"""


def test_the_rank_that_is_stuck_is_named(project: Project) -> None:
    project.script(RANK, "rank.py")
    (project.folder / "distributed").mkdir()
    project.script(COLLECTIVE, "distributed/distributed_c10d.py")
    launcher = project.script(LAUNCHER)

    ended = project.run("--max-attempts", "1", "--", sys.executable, launcher, within=WITHIN)

    who = "rank 1 is waiting for a lock at rank.py:12 stuck, and 1 rank waits for it"
    assert who in ended.lines("hung")[0], ended.err
    (incident,) = project.story()["incidents"]
    assert incident["blame"]["why"] == who
    assert [each["rank"] for each in incident["blame"]["ranks"]] == [1]
    kept = json.loads((Path(incident["evidence"]) / "ranks.json").read_text())
    assert [each["waits_for"] for each in kept["ranks"]] == ["the other ranks", "a lock"]
    assert who in project.say("report").out


def test_of_ranks_in_different_collectives_all_lines_are_shown_and_none_is_to_be_fixed(
    project: Project,
) -> None:
    last = 'stuck() if os.environ["RANK"] == "1" else all_reduce()'
    apart = 'if os.environ["RANK"] == "1":\n            all_reduce()\n        all_reduce()'
    project.script(RANK.replace(last, apart), "rank.py")
    (project.folder / "distributed").mkdir()
    project.script(COLLECTIVE, "distributed/distributed_c10d.py")
    launcher = project.script(LAUNCHER)

    ended = project.run("--max-attempts", "1", "--", sys.executable, launcher, within=WITHIN)

    said = "rank 0 stopped at rank.py:22 main, rank 1 stopped at rank.py:21 main"
    assert f"no rank stands out: {said}" in ended.lines("hung")[0], ended.err
    assert "deadlocked" not in ended.err
    assert "Fix" not in ended.err + project.say("report").out


def test_a_rank_that_failed_is_named_though_its_launcher_says_nothing(project: Project) -> None:
    last = 'stuck() if os.environ["RANK"] == "1" else all_reduce()'
    ends = 'os._exit(3) if os.environ["RANK"] == "1" else all_reduce()'
    project.script(RANK.replace(last, ends), "rank.py")
    (project.folder / "distributed").mkdir()
    project.script(COLLECTIVE, "distributed/distributed_c10d.py")
    waits = (
        "ranks = [start(0), start(1)]\n    time.sleep(6.0)\n    ranks[0].kill()\n    sys.exit(1)"
    )
    whole = "sys.exit(max(each.wait() for each in [start(0), start(1)]))"
    launcher = project.script(
        LAUNCHER.replace(whole, waits).replace("subprocess, sys", "subprocess, sys, time")
    )

    ended = project.run("--max-attempts", "1", "--", sys.executable, launcher, within=WITHIN)

    assert "exit code 3, no error message on rank 1" in ended.err
