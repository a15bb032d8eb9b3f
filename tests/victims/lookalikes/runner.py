"""Runs one case under ``rocsteady run``, or bare, from outside, and says what came of it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lookalikes.base import Case
from lookalikes.catalogue import LIBRARIES, half_of

ROCSTEADY = (sys.executable, "-m", "rocsteady")
FOUND_WITHIN = 12.0  # seconds, for a closed set of waits
HANG_AFTER = 20.0  # what hangs that cannot be proven are given
LATE = 5.0  # seconds, that a budget may be exceeded by
SAID = re.compile(r"^rocsteady: (hung|slow|stopped) .*", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How cases are run."""

    python: str  # with torch
    libraries: Path
    rocsteady: tuple[str, ...] = ROCSTEADY
    short: bool = False
    bare: bool = False
    grace: float = 150  # seconds, for imports and a busy machine
    late: float = 0  # seconds, that a verdict may come later where many run at once


@dataclass(frozen=True, kw_only=True)
class Result:
    """What came of one case."""

    name: str
    family: str
    expect: str
    half: str
    wrong: str  # what is wrong; "" if it is as it should be
    killed: bool  # a healthy script that rocsteady ended
    falsely_done: bool  # and that it reported as done
    code: int | None  # None: the runner ended it
    code_wrong: bool
    verdicts: list[str]
    detected: float | None  # seconds from the event to the verdict
    located: bool | None
    seconds: float
    output: str


def build(folder: Path) -> None:
    """Compile the stand-in libraries."""
    for name, source in LIBRARIES.items():
        text = folder / f"{name}.c"
        text.write_text(source)
        flags = ["-O1", "-g", "-shared", "-fPIC", "-pthread", "-fno-optimize-sibling-calls"]
        subprocess.run(["gcc", *flags, "-o", str(folder / name), str(text)], check=True)


def run(case: Case, setting: Setting) -> Result:
    """Run a case in a folder of its own."""
    folder = Path(tempfile.mkdtemp(prefix="c-"))
    execution = _Execution(case, setting, folder)
    _LIVE.append(execution)
    try:
        return execution.carry_out()
    finally:
        _LIVE.remove(execution)
        shutil.rmtree(folder, ignore_errors=True)


def end_all(*_: object) -> None:
    """End every case that still runs, and this program; a handler of SIGTERM."""
    _ENDING.set()
    for execution in tuple(_LIVE):
        execution.close()
        shutil.rmtree(execution.folder, ignore_errors=True)
    os._exit(1)


class _Execution:
    def __init__(self, case: Case, setting: Setting, folder: Path) -> None:
        self.case, self.setting, self.folder = case, setting, folder
        self.seconds = case.seconds(short=setting.short)
        self.started: list[subprocess.Popen[bytes]] = []
        self.environment = {
            **os.environ,
            "HOME": str(folder),
            "TMPDIR": str(folder),
            "CORPUS_CASE": folder.name,
            "ROCSTEADY_RECORD_NAME": case.name,
        }
        for name in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME", "VIRTUAL_ENV"):
            self.environment.pop(name, None)
        for name, text in case.files(short=setting.short).items():
            (folder / name).write_text(text)
        for name in case.needs:
            shutil.copy(setting.libraries / name, folder)

    def carry_out(self) -> Result:
        began = time.monotonic()
        try:
            self._start_outsider()
            child = self._start()
            if self.case.deed:
                threading.Thread(target=self._act, args=(child.pid,), daemon=True).start()
            code, at = self._watch(child)
            story = {} if self.setting.bare else self._story()
        finally:
            self.close()
        return self._result(code, at, story, time.monotonic() - began)

    def close(self) -> None:
        """End whatever is left of this case."""
        _signal(self._processes(), signal.SIGKILL)
        for started in self.started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGKILL)
            started.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        words = {"PYTHON": self.setting.python, "WAIT": str(self.seconds)}
        command = [words.get(word, word) for word in self.case.command]
        if not self.setting.bare:
            options = ("--name", "case", "--max-attempts", "1", *self.case.arguments)
            command = [*self.setting.rocsteady, "run", *options, "--", *command]
        if "libclock.so" in self.case.needs:
            clock = self.folder / "clock"
            clock.write_bytes(bytes(8))
            shift = {"LD_PRELOAD": str(self.folder / "libclock.so"), "CORPUS_CLOCK": str(clock)}
            self.environment |= shift
        return self._popen(command, self.environment)

    def _popen(self, command: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
        if _ENDING.is_set():
            raise SystemExit
        with (self.folder / "output").open("ab") as output:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                cwd=self.folder,
                start_new_session=True,
            )
        self.started.append(child)
        return child

    def _start_outsider(self) -> None:
        if not self.case.outside:
            return
        command = [self.setting.python, "outside.py"]
        self._popen(command, {**self.environment, "CORPUS_CASE": "outside"})
        deadline = time.monotonic() + self.setting.grace
        while not (self.folder / "outside-ready").exists() and time.monotonic() < deadline:
            time.sleep(0.1)

    def _watch(self, child: subprocess.Popen[bytes]) -> tuple[int | None, dict[str, float]]:
        """Wait for the end, and note when each verdict came, in seconds after the event."""
        deadline = time.monotonic() + self.seconds * 2 + self.setting.grace
        hangs, at, event = self.case.expect != "healthy", dict[str, float](), None
        while time.monotonic() < deadline:
            code = child.poll()
            event = event or self._event()
            since = time.time() - event if event else 0.0
            for verdict in self._said():
                at.setdefault(verdict, since)
            if code is not None:
                at.setdefault("end", since)
                return code, at
            if event and hangs and ("stopped" in at or (self.setting.bare and since > 15)):
                break
            if event and hangs and since > HANG_AFTER + 40:
                break
            time.sleep(0.1)
        if not self.setting.bare:
            child.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(20)
        return None, at

    def _event(self) -> float | None:
        with contextlib.suppress(OSError, ValueError, IndexError):
            return float((self.folder / "event").read_text().split()[0])
        return None

    def _said(self) -> list[str]:
        output = (self.folder / "output").read_text(errors="replace")
        return [found[1].lower() for found in SAID.finditer(output)]

    def _story(self) -> dict[str, Any]:
        environment = {k: v for k, v in self.environment.items() if k != "LD_PRELOAD"}
        told = subprocess.run(
            [*self.setting.rocsteady, "report", "case", "--json"],
            capture_output=True,
            check=False,
            cwd=self.folder,
            env=environment,
        )
        story: dict[str, Any] = json.loads(told.stdout) if told.returncode == 0 else {}
        return story

    def _processes(self) -> list[int]:
        """Return all processes of this case but the outsider."""
        wanted, found = f"CORPUS_CASE={self.folder.name}\0".encode(), []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if wanted in path.read_bytes() + b"\0":
                    found.append(int(path.parent.name))
        return found

    def _act(self, supervisor: int) -> None:
        """Do to the processes what the case asks for, once the event has begun."""
        while not (self.folder / "event").exists():
            time.sleep(0.1)
        deed, _, whom = self.case.deed.partition("-")
        time.sleep(1)
        until = time.monotonic() + self.seconds
        while time.monotonic() < until:
            pids = self._chosen(whom, supervisor)
            _signal(pids, signal.SIGSTOP)
            time.sleep(self.seconds if deed == "suspend" else 0.8)
            _signal(pids, signal.SIGCONT)
            time.sleep(0.2)

    def _chosen(self, whom: str, supervisor: int) -> list[int]:
        if whom == "pid":
            return [int((self.folder / "pid").read_text())]
        everyone = self._processes()
        if whom == "all":
            return everyone
        return [pid for pid in everyone if pid != supervisor and not _is_rocsteady(pid)]

    def _result(
        self, code: int | None, at: dict[str, float], story: dict[str, Any], seconds: float
    ) -> Result:
        case = self.case
        output = (self.folder / "output").read_text(errors="replace")
        finished = (self.folder / "finished").exists()
        ended = any(deed["kind"] == "kill" for deed in story.get("deeds", []))
        killed = case.expect == "healthy" and code is not None
        killed &= not finished or (ended and code != case.code)
        done = code == 0 or story.get("run", {}).get("outcome") == "done"
        code_wrong = case.expect == "healthy" and code is not None and code != case.code
        places = [found["place"] for found in story.get("incidents", [])]
        places += [found[0] for found in SAID.finditer(output)]
        lines = case.lines()
        located = any(re.search(rf"{line}\b", place) for line in lines for place in places)
        if self.setting.bare:
            wrong = self._wrong_bare(code, finished=finished)
        elif case.expect == "healthy":
            wrong = self._wrong_healthy(code, story, finished=finished)
        else:
            wrong = self._wrong_hang(code, at)
        return Result(
            name=case.name,
            family=case.family,
            expect=case.expect,
            half=half_of(case),
            wrong=wrong,
            killed=killed,
            falsely_done=killed and done,
            code=code,
            code_wrong=code_wrong,
            verdicts=[verdict for verdict in at if verdict != "end"],
            detected=at.get("hung") if case.expect != "stopped" else at.get("stopped"),
            located=located if lines and "hung" in at else None,
            seconds=seconds,
            output=output[-6000:],
        )

    def _wrong_bare(self, code: int | None, *, finished: bool) -> str:
        if self.case.expect != "healthy":
            return "" if code is None else f"ended by itself with {code}"
        return "" if finished and code == self.case.code else f"ended with {code}"

    def _wrong_healthy(self, code: int | None, story: dict[str, Any], *, finished: bool) -> str:
        if code is None:
            return "not ended in time"
        if not finished:
            return f"killed (exit code {code})"
        if len(story.get("attempts", [1])) != 1:
            return "more than one attempt"
        return "" if code == self.case.code else f"exit code {code}, not {self.case.code}"

    def _wrong_hang(self, code: int | None, at: dict[str, float]) -> str:
        if self.case.expect == "stopped":
            wrong = "hung" in at or "stopped" not in at
            return f"reported {sorted(at)}, not stopped" if wrong else ""
        found = at.get("hung")
        if found is None:
            return f"not found: reported {sorted(at)}, exit code {code}"
        limit = FOUND_WITHIN if self.case.expect == "hung" else HANG_AFTER + LATE
        limit += self.setting.late
        return "" if found <= limit else f"found after {found:.1f} s, not within {limit:.0f} s"


def _is_rocsteady(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return b"rocsteady" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return True


def _signal(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


_LIVE: list[_Execution] = []
_ENDING = threading.Event()
