"""``rocsteady`` as a person starts it: real processes in a project of their own.

Every process of a project has its folder as HOME, by which those that are left are found.
"""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

ROCSTEADY = (sys.executable, "-m", "rocsteady")
WITHIN = 60.0  # seconds, for a machine that has other things to do
SHARED_MEMORY = Path("/dev/shm")


class Ended(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def said(self) -> list[str]:
        lines = self.err.replace("\r", "").splitlines()
        ours = ("rocsteady: ", "error: ")
        return [line.partition(": ")[2] for line in lines if line.startswith(ours)]

    def lines(self, word: str) -> list[str]:
        """Return the lines that begin with the word of a state, without it."""
        return [
            line.removeprefix(word).strip() for line in self.said if line.startswith(f"{word} ")
        ]


class Project:
    def __init__(self, folder: Path) -> None:
        self.folder = folder / "project"
        self.home = folder / "home"
        self.temporary = Path(tempfile.mkdtemp(prefix="test-"))  # sockets need a short path
        for made in (self.folder, self.home):
            made.mkdir()
        self.program: tuple[str, ...] = ROCSTEADY
        self.name = f"test-{uuid.uuid4().hex[:8]}"
        self.environment = {
            **os.environ,
            "HOME": str(self.home),
            "TMPDIR": str(self.temporary),
            "TORCHINDUCTOR_CACHE_DIR": str(self.home / "inductor"),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        for unwanted in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME", "VIRTUAL_ENV"):
            self.environment.pop(unwanted, None)
        self.started: list[subprocess.Popen[bytes]] = []
        self.terminals: list[Terminal] = []

    def script(self, text: str, name: str = "train.py") -> str:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return name

    def job(self, text: str, *script: str) -> None:
        """Write a job file whose command is Python with a script."""
        command = json.dumps([sys.executable, *script])
        (self.folder / "rocsteady.toml").write_text(f"command = {command}\n{textwrap.dedent(text)}")

    def run(self, *words: str, within: float = WITHIN, name: str | None = None) -> Ended:
        """Carry out ``rocsteady run`` to its end."""
        return self.ended(self.start(*words, name=name), within)

    def start(self, *words: str, name: str | None = None) -> subprocess.Popen[bytes]:
        """Start ``rocsteady run`` in a process group of its own, without a terminal."""
        resumed = words[words.index("--resume") + 1] if "--resume" in words else "auto"
        named = ("--name", name or self.name) if resumed in ("auto", "never") else ()
        return self.popen("run", "--yes", *named, *words)

    def popen(self, *words: str) -> subprocess.Popen[bytes]:
        child = subprocess.Popen(
            [*self.program, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.folder,
            env=self.environment,
            start_new_session=True,
        )
        self.started.append(child)
        return child

    def ended(self, child: subprocess.Popen[bytes], within: float = WITHIN) -> Ended:
        out, err = child.communicate(timeout=within)
        return Ended(child.returncode, out.decode(errors="replace"), err.decode(errors="replace"))

    def say(self, *words: str, within: float = WITHIN) -> Ended:
        return self.ended(self.popen(*words), within)

    def on_terminal(self, *command: str) -> Terminal:
        """Start a command on a terminal of its own."""
        terminal = Terminal(command, self.folder, self.environment)
        self.terminals.append(terminal)
        return terminal

    def line(self, name: str | None = None) -> dict[str, Any]:
        """Return a run as ``rocsteady status --json`` has it."""
        told = json.loads(self.say("status", "--json").out)
        assert told["version"] == 1
        found = [line for line in told["runs"] if line["run"]["name"] == (name or self.name)]
        return dict(found[0]) if found else {}

    def decided(self, name: str | None = None) -> list[str]:
        """Return what led to each next attempt: a remedy, "option-2", "again", or "end"."""
        decisions = [each["decision"] for each in self.story(name)["decisions"]]
        return [
            f"option-{each['fallback']}" if "fallback" in each else each.get("remedy", each["next"])
            for each in decisions
        ]

    def story(self, name: str | None = None) -> dict[str, Any]:
        """Return a run as ``rocsteady report --json`` has it."""
        told = self.say("report", name or self.name, "--json")
        assert told.code == 0, told.err
        return dict(json.loads(told.out))

    def log(self, attempt: int = 1) -> str:
        """Return the kept log of an attempt, without the times."""
        path = self.folder / ".rocsteady" / "runs" / self.name / f"attempt-{attempt}.log"
        lines = path.read_text().splitlines() if path.exists() else []
        return "\n".join(line[25:] for line in lines)

    def processes(self) -> dict[int, str]:
        found = {}
        for environ in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if f"HOME={self.home}\0".encode() in environ.read_bytes():
                    words = (environ.parent / "cmdline").read_text().replace("\0", " ")
                    found[int(environ.parent.name)] = words
        return found

    def left(self) -> list[str]:
        """Name what is left behind: processes, shared memory, temporary files."""
        left = list(self.processes().values())
        # What multiprocessing keeps there is the script's own, and stays if that is killed.
        left += [str(path) for path in self.temporary.iterdir() if path.name[:5] != "pymp-"]
        names = {self.name} | {path.name for path in self.folder.glob(".rocsteady/runs/*")}
        for name in names:
            left += map(str, SHARED_MEMORY.glob(f"rocsteady-{name}-*"))
        return left

    def close(self) -> None:
        """End what a failed test left, so that the next is not disturbed."""
        for terminal in self.terminals:
            terminal.close()
        for child in self.started:
            for stream in (child.stdout, child.stderr):
                if stream:
                    stream.close()
            if child.poll() is None:
                child.kill()
            child.wait()
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.temporary)


class Terminal:
    """A command on a terminal, and a person who types."""

    def __init__(self, command: tuple[str, ...], folder: Path, environment: dict[str, str]) -> None:
        self.pid, self._master = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execvpe(command[0], command, environment)  # noqa: S606 - what a person started
        self._shown = bytearray()
        self._gone = False
        self._code: int | None = None
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def text(self) -> str:
        return bytes(self._shown).decode(errors="replace").replace("\r", "")

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def wait_for(self, text: str, within: float = WITHIN) -> None:
        until(lambda: text in self.text, within, lambda: self.text[-2000:])

    def hang_up(self) -> None:
        """Pull the plug: the kernel tells the leader, and who writes to it gets an error."""
        self._gone = True
        self._reader.join()
        os.close(self._master)

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # a terminal ends with EIO
            while not self._gone:
                if select.select([self._master], [], [], 0.05)[0]:
                    self._shown += os.read(self._master, 65536)

    def code(self, within: float = WITHIN) -> int:
        def ended() -> bool:
            if self._code is None:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                self._code = os.waitstatus_to_exitcode(status) if pid else None
            return self._code is not None

        until(ended, within, lambda: self.text)
        assert self._code is not None
        return self._code

    def close(self) -> None:
        if self._code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.pid, 0)
        if not self._gone:
            self.hang_up()


def until(
    true: Callable[[], object], within: float = WITHIN, why: Callable[[], str] = lambda: ""
) -> float:
    """Wait until something is true, and return how long that took."""
    start = time.monotonic()
    while not true():
        assert time.monotonic() - start < within, f"not within {within} s. {why()}"
        time.sleep(0.02)
    return time.monotonic() - start


def is_stopped(pid: int) -> bool:
    """Tell whether a process is stopped by a signal."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("T")
