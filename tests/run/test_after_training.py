"""What a command does after its training is work, and nothing that was killed counts as done."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

if os.name == "nt":
    pytest.skip("real runs are of POSIX; Windows is unconfirmed", allow_module_level=True)

from supervised import Ended, Project

from rocsteady.hangs.values import Heartbeat
from rocsteady.run.attempt import progress as live_processes
from rocsteady.run.attempt.progress import LiveProcesses
from rocsteady.run.job.done_when import proves
from rocsteady.run.job.values import DoneWhen, WantedFile
from rocsteady.system.child_end import Exit

VICTIMS = Path(__file__).parent.parent / "victims"
PAUSE = 14  # seconds; hurried, "still for 8 s after the script's own code is done" was too long
TRAINS = """
    import torch
    weight = torch.nn.Parameter(torch.zeros(4))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for step in range(60):
        weight.grad = torch.ones(4)
        optimizer.step()
        time.sleep(0.01)
"""
BEFORE = "import atexit, os, socket, subprocess, sys, threading, time\n"
SEND = """
    def upload():
        connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
        for _ in range(28):
            connection.sendall(bytes(1000))
            time.sleep(0.5)
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1) == b"k"
        open("uploaded", "w").close()
"""
PRINTS = """
    def evaluate():
        for image in range(28):
            print(f"evaluated {image}/28", flush=True)
            time.sleep(0.5)
        open("uploaded", "w").close()
    atexit.register(evaluate)
"""


def beat(pid: int, **fields: object) -> Heartbeat:
    values: dict[str, object] = {
        "pid": pid,
        "rank": None,
        "world": None,
        "thread": pid,
        "step": 5,
        "beats": 10,
        "phase": "compute",
        "since": 0.0,
        "last_step": 0.0,
        "ended": False,
        "raised": False,
        "total": None,
        "seconds_in": {},
        "longest_in": {},
        "histogram": {},
    }
    return Heartbeat(**(values | fields))  # type: ignore[arg-type]


@pytest.fixture
def births(monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """Give the processes that live, with the moment of their birth."""
    found: dict[int, int] = {}
    monkeypatch.setattr(live_processes, "_birth", found.get)
    return found


def test_a_page_is_left_out_once_its_process_is_gone(births: dict[int, int]) -> None:
    alive = LiveProcesses()
    births[7] = 100
    assert alive.among([beat(7, ended=True)]) == (beat(7, ended=True),)

    births[7] = 900  # another process has its number

    assert alive.among([beat(7, ended=True)]) == ()
    assert LiveProcesses().among([beat(8, ended=True)]) == ()


def test_a_process_without_a_pid_here_counts_while_it_beats(births: dict[int, int]) -> None:
    alive = LiveProcesses()
    assert alive.among([beat(7)]) == (beat(7),)
    births[7] = 100
    assert alive.among([beat(7)]) == (beat(7),)
    del births[7]

    assert alive.among([beat(7)]) == ()
    assert alive.among([beat(7, beats=12)]) == (beat(7, beats=12),)


@pytest.mark.parametrize(
    ("codes", "failed"),
    [([3], Exit(code=3, rank=0)), ([-9], Exit(signal=9, rank=0)), ([0, 3], Exit(code=3, rank=1))],
)
def test_how_the_first_rank_failed_is_read_before_its_launcher_reaps_it(
    births: dict[int, int], codes: list[int], failed: Exit
) -> None:
    alive = LiveProcesses()
    ends = "import os, sys; code = int(sys.argv[1]); code < 0 and os.kill(0, 9); sys.exit(code)"
    ranks = [
        subprocess.Popen([sys.executable, "-c", ends, str(code)], start_new_session=True)
        for code in codes
    ]
    beats = [beat(each.pid, rank=rank, world=3) for rank, each in enumerate(ranks)]
    births |= {each.pid: 1 for each in ranks}
    alive.among(beats)
    for each in ranks:
        os.waitid(os.P_PID, each.pid, os.WEXITED | os.WNOWAIT)
        del births[each.pid]

        alive.among(beats)

    assert alive.first_failure == failed
    for each in ranks:
        each.wait()


def test_a_rank_that_is_gone_counts_while_another_lives(births: dict[int, int]) -> None:
    alive = LiveProcesses()
    ranks = (beat(7, rank=0, world=2), beat(8, rank=1, world=2))
    births |= {7: 1, 8: 1}
    assert alive.among(ranks) == ranks

    del births[7]
    assert alive.among(ranks) == ranks
    births[9] = 2
    next_one = beat(9, rank=0, world=2)
    assert alive.among([*ranks, next_one]) == (ranks[1], next_one)
    del births[8], births[9]
    assert alive.among([*ranks, next_one]) == ()


@pytest.fixture
def receiver() -> Iterator[int]:
    """Receive an upload, and answer when all of it is there. Gives the port."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def receive() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection, contextlib.suppress(OSError):
                    while connection.recv(65536):
                        pass
                    time.sleep(1)
                    connection.sendall(b"k")

        threading.Thread(target=receive, daemon=True).start()
        yield server.getsockname()[1]


def hurried(folder: Path, name: str) -> Project:
    (folder / name).mkdir()
    project = Project(folder / name)
    project.program = (sys.executable, str(VICTIMS / "hurried.py"))
    return project


def script(project: Project, *parts: str, name: str = "t.py") -> str:
    text = BEFORE + "".join(textwrap.dedent(part) for part in parts)
    return project.script(text, name)


@pytest.mark.slow
def test_work_after_training_is_not_cut_short(
    tmp_path: Path, torch_python: str, receiver: int
) -> None:
    """Run all cases side by side: each of them mostly waits."""
    plain = (TRAINS,)
    at_exit = (SEND, "atexit.register(upload)\n", TRAINS)
    in_thread = (SEND, "threading.Thread(target=upload).start()\n", TRAINS)
    python = torch_python
    cases = {
        "sleeps": (plain, f"{python} t.py && sleep {PAUSE} && touch uploaded"),
        "upload-at-exit": (at_exit, f"exec {python} t.py {receiver}"),
        "upload-thread": (in_thread, f"exec {python} t.py {receiver}"),
        "evaluation": ((PRINTS, TRAINS), f"exec {python} t.py"),
        "gzip": (plain, f"{python} t.py && (sleep {PAUSE}; date) | gzip > gz && mv gz uploaded"),
        "two-trainings": (plain, f"{python} t.py; sleep {PAUSE}; {python} t.py && touch uploaded"),
    }
    projects = {name: hurried(tmp_path, name) for name in cases}
    try:
        started = {}
        for name, (parts, command) in cases.items():
            script(projects[name], *parts)
            started[name] = projects[name].start("--", "bash", "-c", command)
        for name, child in started.items():
            ended = projects[name].ended(child, within=150)
            assert ended.code == 0, (name, ended.err)
            assert (projects[name].folder / "uploaded").exists(), (name, ended.err)
            assert ended.lines("done"), (name, ended.err)
            assert "hung" not in ended.err, (name, ended.err)
    finally:
        for project in projects.values():
            project.close()


NEVER_EXITS = """
    import queue
    threading.Thread(target=queue.Queue().get).start()
"""
IGNORES_THE_KILL = """
    import signal
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    signal.signal(signal.SIGINT, lambda *_: os._exit(0))
"""


@pytest.mark.slow
def test_what_was_killed_at_exit_is_done_only_by_its_criteria(
    tmp_path: Path, torch_python: str
) -> None:
    cases = {"none": ("", 76), "met": ("[done_when]\nsteps = 60\n", 0)}
    projects = {name: hurried(tmp_path, name) for name in cases}
    try:
        started = {}
        for name, (criteria, _) in cases.items():
            file = script(projects[name], NEVER_EXITS, IGNORES_THE_KILL, TRAINS)
            command = f'command = ["{torch_python}", "{file}"]\n'
            (projects[name].folder / "rocsteady.toml").write_text(command + criteria)
            started[name] = projects[name].start()
        for name, (_, code) in cases.items():
            ended: Ended = projects[name].ended(started[name], within=150)
            assert ended.code == code, ended.err
            assert bool(ended.lines("done")) == (code == 0), ended.err
            assert ended.lines("hung"), ended.err
            outcome = "done" if code == 0 else "ended, not done"
            assert projects[name].line()["run"]["outcome"] == outcome
    finally:
        for project in projects.values():
            project.close()


@pytest.mark.parametrize(
    ("criteria", "expected"),
    [
        ({}, False),
        ({"absent_text": ("Traceback",)}, False),
        ({"within": timedelta(hours=1)}, False),
        ({"gpus_busy": 1}, False),
        ({"steps": 60}, True),
        ({"epochs": 3}, True),
        ({"present_text": ("saved",)}, True),
        ({"files": (WantedFile(path="model.pt"),)}, True),
    ],
)
def test_only_criteria_that_ask_for_something_prove_anything(
    criteria: dict[str, object], *, expected: bool
) -> None:
    assert proves(msgspec.structs.replace(DoneWhen(), **criteria)) is expected


def test_what_the_command_leaves_in_the_background_is_named_and_ended(project: Project) -> None:
    ended = project.run("--", "bash", "-c", "sleep 600 & exit 3")

    assert ended.code == 3
    assert "the command ended; terminating the processes it left: " in ended.err
    assert "(sleep)" in ended.err
    assert project.processes() == {}
