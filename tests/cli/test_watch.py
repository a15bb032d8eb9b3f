"""A real run, watched on a real terminal: keys, sizes, and the terminal as it was before."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

if sys.platform == "win32":
    pytest.skip("a full screen is of POSIX", allow_module_level=True)

import fcntl
import struct
import termios

pytestmark = pytest.mark.slow

STEPS = """
import time
for step in range(2000):
    print(f"step {step + 1}/2000 token=hf_abcdefghijklmnopqrstuvwxyz0123456789", flush=True)
    time.sleep(0.05)
"""
SHOWN, HIDDEN = b"\x1b[?1049h", b"\x1b[?1049l"
WITHIN = 60.0  # seconds, on a machine that is busy with other tests
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Watched:
    """``rocsteady watch`` on a terminal of its own."""

    def __init__(
        self, folder: Path, environment: dict[str, str], *words: str, command: str = "watch"
    ) -> None:
        self.master, slave = os.openpty()
        self.resize(80, 24)
        self.before = termios.tcgetattr(slave)
        self.slave = slave
        self.child = subprocess.Popen(
            [sys.executable, "-m", "rocsteady", command, *words],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=folder,
            env={**environment, "TERM": "xterm"},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - one thread
        )
        self.seen = b""

    def resize(self, columns: int, lines: int) -> None:
        size = struct.pack("4H", lines, columns, 0, 0)
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, size)

    def press(self, keys: str) -> None:
        self.seen = b""
        os.write(self.master, keys.encode())

    def until(self, text: str) -> str:
        """Read until a text is on the screen; return all that was drawn since the last key."""
        deadline = time.monotonic() + WITHIN
        while text not in (screen := _CONTROL.sub("", self.seen.decode(errors="replace"))):
            left = deadline - time.monotonic()
            assert left > 0, f"no {text!r} in {screen[-3000:]!r}"
            if select.select([self.master], [], [], min(left, 0.5))[0]:
                self.seen += os.read(self.master, 65536)
        return screen

    def end(self) -> int:
        """Wait for its end; return the exit code."""
        deadline = time.monotonic() + WITHIN
        while self.child.poll() is None:
            assert time.monotonic() < deadline
            if select.select([self.master], [], [], 0.05)[0]:
                self.seen += os.read(self.master, 65536)
        while select.select([self.master], [], [], 0)[0]:
            self.seen += os.read(self.master, 65536)
        return self.child.returncode

    def assert_restored(self) -> None:
        assert termios.tcgetattr(self.slave) == self.before
        assert self.seen.rstrip().endswith(HIDDEN) or HIDDEN in self.seen
        assert self.seen.rfind(HIDDEN) > self.seen.rfind(SHOWN)


class Folder:
    """A project with a run in the background."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(path), "LANG": "C.UTF-8"}
        (path / "train.py").write_text(STEPS)

    def rocsteady(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "rocsteady", *words],
            cwd=self.path,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def start(self, name: str) -> None:
        words = (
            "run",
            "--detach",
            "--resume",
            "never",
            "--name",
            name,
            "--",
            sys.executable,
            "train.py",
        )
        resumes = ("--resume", "latest")  # so that a restart loses nothing
        assert self.rocsteady(*words, *resumes).returncode == 0

    def line(self, name: str) -> dict[str, object]:
        runs = json.loads(self.rocsteady("status", "--json").stdout)["runs"]
        return next(line for line in runs if line["run"]["name"] == name)

    def intents(self, name: str, kind: str) -> list[dict[str, object]]:
        story = json.loads(self.rocsteady("report", name, "--json").stdout)
        return [intent for intent in story["intents"] if intent["kind"] == kind]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    made = Folder(tmp_path)
    yield made
    for line in json.loads(made.rocsteady("status", "--json").stdout)["runs"]:
        if line["alive"]:
            made.rocsteady("stop", line["run"]["name"])


@pytest.fixture
def watched(folder: Folder) -> Iterator[Watched]:
    folder.start("one")
    watch = Watched(folder.path, folder.environment)
    yield watch
    with contextlib.suppress(ProcessLookupError):
        watch.child.kill()
    watch.child.wait()
    os.close(watch.master)
    os.close(watch.slave)


@pytest.mark.ci
def test_the_screen_follows_the_run_and_the_terminal_is_restored(watched: Watched) -> None:
    watched.until("/2000")
    watched.until("TRAINING")
    watched.until("q quit")
    assert "hf_abcdef" not in watched.until("token=")
    watched.press("")
    watched.resize(200, 50)
    watched.until("q quit")  # tests/screens/test_watch.py looks at the layout at each size
    watched.press("?")
    watched.until("your own frames first")
    watched.press("q")
    watched.until("q quit")
    watched.press("q")
    assert watched.end() == 0
    watched.assert_restored()


def test_stacks_name_the_line_of_the_script(watched: Watched) -> None:
    watched.until("/2000")
    watched.press("s")

    assert "train.py:5" in watched.until("<module>")


def test_a_paused_run_is_not_called_hung_and_continues(watched: Watched, folder: Folder) -> None:
    watched.until("/2000")
    watched.press("p")
    watched.until("paused")
    first = folder.line("one")["step"]
    time.sleep(12)  # longer than a run that is stuck would be left alone
    paused = folder.line("one")
    watched.press("p")
    watched.until("TRAINING")
    story = json.loads(folder.rocsteady("report", "one", "--json").stdout)

    assert paused["step"] == first
    assert story["incidents"] == []
    assert len(story["attempts"]) == 1
    assert [intent["outcome"] for intent in story["intents"] if intent["kind"] == "pause"] == [
        "continued"
    ]
    assert any(message["text"].startswith("paused by the user") for message in story["messages"])


def test_stop_asks_first_and_a_paused_run_is_stopped_too(watched: Watched, folder: Folder) -> None:
    watched.until("/2000")
    watched.press("p")
    watched.until("paused")
    watched.press("x")
    watched.until("Stop one? y/n")
    watched.press("n")
    time.sleep(1)  # the question is gone
    watched.press("x")
    watched.until("Stop one? y/n")
    watched.press("y")
    watched.until("STOPPED")
    watched.press("q")

    assert watched.end() == 76
    assert folder.line("one")["run"]["outcome"] == "stopped by the user"  # type: ignore[index]


def test_a_restart_asks_first_and_the_run_is_followed(watched: Watched) -> None:
    watched.until("/2000")
    watched.press("R")
    watched.until("y/n")
    watched.press("y")
    watched.until("retries")
    watched.press("q")

    assert watched.end() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_restores_the_terminal(watched: Watched, number: signal.Signals) -> None:
    watched.until("/2000")
    watched.child.send_signal(number)

    assert watched.end() == 128 + number
    watched.assert_restored()


def test_interrupt_leaves_and_the_run_continues(watched: Watched, folder: Folder) -> None:
    watched.until("/2000")
    watched.press("\x03")

    assert watched.end() == 130
    watched.assert_restored()
    assert folder.line("one")["alive"] is True


def test_a_detached_run_that_cannot_be_resumed_is_reported(folder: Folder) -> None:
    program = folder.path / "program"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    assert folder.rocsteady("run", "--detach", "--name", "one", "--", "./program").returncode == 0
    assert folder.rocsteady("stop", "one").returncode == 0
    program.unlink()

    resumed = folder.rocsteady("run", "--resume", "one", "--detach")

    assert resumed.returncode == 76, resumed.stderr
    assert "No such file" in resumed.stderr


def test_of_two_runs_one_is_chosen(folder: Folder) -> None:
    folder.start("one")
    folder.start("two")
    watch = Watched(folder.path, folder.environment)

    watch.until("1  two")
    watch.press("2")
    watch.until("/2000")
    watch.until("TRAINING")
    watch.press("q")
    assert watch.end() == 0


def test_without_a_terminal_it_prints_lines_until_the_run_ends(folder: Folder) -> None:
    (folder.path / "train.py").write_text(STEPS.replace("2000", "60"))
    folder.start("short")

    shown = folder.rocsteady("watch", "--interval", "1s")
    ended = folder.rocsteady("watch", "short", "--json")

    assert shown.returncode == 0, shown.stderr
    lines = shown.stdout.splitlines()
    assert re.match(r"\d\d:\d\d:\d\d short: (starting|training)", lines[0])
    assert lines[-1].endswith("short: done, step 60/60 (100%)")
    assert json.loads(ended.stdout)["state"] == "done"
    assert ended.returncode == 0
