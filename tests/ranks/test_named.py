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
