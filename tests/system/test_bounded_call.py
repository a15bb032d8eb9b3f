"""A child is never waited for longer than promised, and nothing that it started is left."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from rocsteady.system import bounded_call
from rocsteady.system.bounded_call import ANSWER_LIMIT, Answer, AnswerKind, ask

if os.name == "nt":
    pytest.skip("needs Linux", allow_module_level=True)
assert sys.platform != "win32"  # tells mypy the same

SOON = timedelta(seconds=1)
LATER = timedelta(seconds=10)
AT_ONCE = 4.0  # seconds more than that; what is waited for would take a minute


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    """See that no thread, descriptor or child of ours outlives a test."""
    threads, descriptors = threading.active_count(), open_descriptors()
    children = children_of_ours()
    yield
    deadline = time.monotonic() + 5
    while threading.active_count() > threads and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() == threads
    assert open_descriptors() == descriptors
    assert children_of_ours() <= children


def children_of_ours() -> set[str]:
    """Return the living children of this process; other tests made it adopt orphans."""
    threads = Path("/proc/self/task").iterdir()
    children: set[str] = set()
    for thread in threads:
        with contextlib.suppress(OSError):  # it has ended
            children |= set((thread / "children").read_text().split())
    states = {pid: Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2] for pid in children}
    return {pid for pid, state in states.items() if not state.startswith("Z")}


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def python(code: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", code]


def is_gone(pid: int) -> bool:
    """Tell whether a process is over; one that nobody has reaped yet is."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.01)
    return False


def test_an_answer_and_its_exit_code() -> None:
    assert ask(["sh", "-c", "echo hello; echo no >&2; exit 3"], within=LATER) == Answer(
        outcome=AnswerKind.ANSWERED, text="hello\n", exit_code=3
    )


def test_what_is_not_utf8_is_an_answer() -> None:
    assert ask(["printf", r"a\377b"], within=LATER).text == "a\ufffdb"


def test_nothing_can_be_typed_into_it() -> None:
    assert ask(["cat"], within=LATER) == Answer(outcome=AnswerKind.ANSWERED, text="", exit_code=0)


def test_it_runs_in_the_folder_and_with_the_variables_that_it_is_given(tmp_path: Path) -> None:
    environment = {"PATH": os.defpath, "A": "1"}

    said = ask(["sh", "-c", "pwd; echo $A"], within=LATER, environment=environment)
    there = ask(["pwd"], within=LATER, folder=str(tmp_path))

    assert said.text == "/\n1\n"
    assert there.text == f"{tmp_path.resolve()}\n"


@pytest.mark.parametrize(
    "command", [["/nonexistent/program"], ["/"], ["a\0b"], ["/etc/hostname"]],
    ids=["absent", "a folder", "no name", "not executable"],
)  # fmt: skip
def test_what_cannot_be_started_is_said(command: list[str]) -> None:
    assert ask(command, within=SOON) == Answer(outcome=AnswerKind.NOT_STARTED)


def test_a_folder_that_is_gone_is_said(tmp_path: Path) -> None:
    assert ask(["pwd"], within=SOON, folder=str(tmp_path / "gone")) == Answer(
        outcome=AnswerKind.NOT_STARTED
    )


def test_one_that_never_returns_and_ignores_sigterm_is_ended_with_its_children(
    tmp_path: Path,
) -> None:
    pids = tmp_path / "pids"
    victim = (
        f"trap '' TERM INT HUP; echo $$ > {pids}; "
        f"sh -c 'trap \"\" TERM INT HUP; echo $$ >> {pids}; while :; do sleep 60; done' & "
        "echo before; while :; do sleep 60; done"
    )
    began = time.monotonic()

    answer = ask(["sh", "-c", victim], within=SOON)

    assert time.monotonic() - began < SOON.total_seconds() + AT_ONCE
    assert answer == Answer(outcome=AnswerKind.TIMED_OUT, text="before\n")
    numbers = [int(pid) for pid in pids.read_text().split()]
    assert len(numbers) == 2
    assert all(is_gone(pid) for pid in numbers)


def test_one_that_closes_its_output_and_lingers_is_ended(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    began = time.monotonic()

    answer = ask(
        ["sh", "-c", f"echo done; echo $$ > {pid}; exec >&- 2>&-; exec sleep 60"], within=SOON
    )

    assert time.monotonic() - began < SOON.total_seconds() + AT_ONCE
    assert answer == Answer(outcome=AnswerKind.TIMED_OUT, text="done\n")
    assert is_gone(int(pid.read_text()))


def test_one_that_takes_a_moment_to_end_after_its_last_word_has_answered() -> None:
    code = "import os, time; os.write(1, b'x'); os.close(1); time.sleep(0.15)"

    assert ask(python(code), within=LATER) == Answer(
        outcome=AnswerKind.ANSWERED, text="x", exit_code=0
    )


@pytest.mark.parametrize("output", ["", "> /dev/null"], ids=["holds the pipe", "let go of it"])
def test_what_a_child_leaves_behind_is_ended_with_it(tmp_path: Path, output: str) -> None:
    pid = tmp_path / "pid"
    began = time.monotonic()

    answer = ask(["sh", "-c", f"sleep 60 {output} & echo $! > {pid}; echo done"], within=SOON)

    assert time.monotonic() - began < SOON.total_seconds() + AT_ONCE
    assert answer == Answer(outcome=AnswerKind.ANSWERED, text="done\n", exit_code=0)
    assert is_gone(int(pid.read_text()))


def test_a_flood_is_cut_off() -> None:
    began = time.monotonic()

    answer = ask(["yes"], within=LATER)

    assert time.monotonic() - began < 5.0
    assert answer == Answer(
        outcome=AnswerKind.ANSWERED, text="y\n" * (ANSWER_LIMIT // 2), exit_code=-signal.SIGPIPE
    )


def test_a_flood_that_ignores_the_closed_pipe_is_ended() -> None:
    code = (
        "import os, signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "while True:\n try: os.write(1, b'x' * 4096)\n except OSError: pass\n"
    )

    answer = ask(python(code), within=SOON)

    assert answer == Answer(outcome=AnswerKind.TIMED_OUT, text="x" * ANSWER_LIMIT)


def test_one_that_cannot_be_killed_is_abandoned_within_the_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A process stuck in the kernel cannot be made on purpose; one that nobody kills looks the same.
    monkeypatch.setattr("rocsteady.system.bounded_call.kill_session", lambda _leader: None)
    began = time.monotonic()

    answer = ask(["sleep", "60"], within=SOON)

    assert time.monotonic() - began < SOON.total_seconds() + AT_ONCE
    assert answer == Answer(outcome=AnswerKind.UNKILLABLE)
    abandoned = bounded_call._abandoned.pop()
    abandoned.kill()
    abandoned.wait()


def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True
    )


def test_a_child_leads_a_session_of_its_own_and_is_killed_with_it() -> None:
    child = sleeper()

    assert os.getsid(child.pid) == child.pid
    bounded_call.kill_session(child.pid)

    assert child.wait(10) == -signal.SIGKILL


def test_looking_whether_a_child_is_over_does_not_reap_it() -> None:
    child = sleeper()

    assert not bounded_call.has_ended(child)
    child.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 10
    while not bounded_call.has_ended(child) and time.monotonic() < deadline:
        time.sleep(0.01)

    assert bounded_call.has_ended(child)
    assert child.wait(0) == -signal.SIGKILL


def test_a_session_that_is_gone_is_fine() -> None:
    child = sleeper()
    child.kill()
    child.wait(10)

    bounded_call.kill_session(child.pid)
