"""A hang beside many threads, descriptors or processes is found, and looking costs little."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

if sys.platform == "win32":
    pytest.skip("needs /proc", allow_module_level=True)

from supervised import Project, until
from torch_stand_in import stand_in_torch

from rocsteady.system import procfs

pytestmark = pytest.mark.slow
CROWDS = {
    "threads": """
        threading.stack_size(65536)
        for _ in range(1000):
            threading.Thread(target=threading.Event().wait, daemon=True).start()
    """,
    "descriptors": """
        resource.setrlimit(resource.RLIMIT_NOFILE, (6000, 6000))
        kept = [os.pipe() for _ in range(1250)] + [socket.socketpair() for _ in range(1250)]
    """,
    "processes": """
        event = multiprocessing.get_context("fork").Event()
        for _ in range(300):
            if os.fork() == 0:
                event.wait()
                os._exit(0)
    """,
}
WAITS = {
    "lock": "lock = threading.Lock(); lock.acquire(); lock.acquire()",
    "sleep": "time.sleep(45)",
}
SHARE = 0.2  # of a core, for the supervisor alone
SPAN = 20.0  # seconds over which that is measured


def script(crowd: str, wait: str) -> str:
    return f"""
import multiprocessing, os, resource, socket, threading, time
from textwrap import dedent
from torch.optim import optimizer
exec(dedent({CROWDS[crowd]!r}))
for _ in range(60):
    optimizer.step()
    time.sleep(0.02)
open("waits", "w").close()
{WAITS[wait]}
"""


@pytest.mark.parametrize("crowd", CROWDS)
def test_a_closed_hang_is_found_within_20_s(project: Project, crowd: str) -> None:
    project.environment["PYTHONPATH"] = stand_in_torch(project)
    child = project.start(
        "--max-attempts", "1", "--", sys.executable, project.script(script(crowd, "lock"))
    )
    until(Path(project.folder, "waits").exists)

    ended = project.ended(child, within=100)

    (line,) = ended.lines("hung")
    assert "train.py:10 in <module>" in line, ended.err
    assert float(line.rpartition(" · ")[2].removesuffix(" s")) < 20, ended.err


@pytest.mark.parametrize("crowd", CROWDS)
def test_what_is_not_proven_is_slow_after_30_s_and_looking_takes_little(
    project: Project, crowd: str
) -> None:
    project.environment["PYTHONPATH"] = stand_in_torch(project)
    child = project.start(
        "--max-attempts", "1", "--", sys.executable, project.script(script(crowd, "sleep"))
    )
    until(Path(project.folder, "waits").exists)
    time.sleep(14)
    before = procfs.stat(child.pid).cpu
    time.sleep(SPAN)
    used = procfs.stat(child.pid).cpu - before

    ended = project.ended(child, within=100)

    assert ended.code == 0, ended.err
    assert len(ended.lines("slow")) == 1, ended.err
    assert used / SPAN < SHARE, f"{used / SPAN:.2f} of a core"
