"""Runs victims under ``rocsteady run`` as a person would, and says what it made of them.

The whole set, at full length, with a table at the end (about half an hour on two cores):

    python tests/victims/watched.py --python PATH-OF-A-PYTHON-WITH-TORCH

``--only NAME`` runs some, ``--speed 4`` divides their pauses, ``--repeat 5`` repeats the hangs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pty
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cases import VICTIMS, Kind, Victim

from rocsteady.exit_codes import PERSON_NEEDED

SUPERVISED = (sys.executable, "-m", "rocsteady")
HURRIED = (sys.executable, str(Path(__file__).parent / "hurried.py"))
GRACE = 90  # seconds, for a machine that has other things to do


@dataclass(frozen=True, kw_only=True)
class Watched:
    victim: Victim
    code: int | None  # None: it had to be ended by us
    seconds: float
    said: tuple[str, ...]  # lines of rocsteady
    printed: str  # by the script
    quiet: float | None  # from the last step to the verdict "hung"
    place: str
    stacks: str  # of the evidence
    left: tuple[str, ...]  # processes and shared memory that are still there

    @property
    def verdicts(self) -> set[str]:
        words = {"hung": "hung", "slow": "slow", "starting": "slow", "stopped": "stopped"}
        return {
            verdict
            for word, verdict in words.items()
            if any(line.startswith(f"rocsteady: {word} ") for line in self.said)
        }

    @property
    def wrong(self) -> str:
        """Say what is wrong; "" if it is as it should be."""
        if self.left:
            return f"left behind: {self.left}"
        if self.victim.kind is Kind.HANG:
            return self._wrong_with_hang()
        if self.victim.kind is Kind.AT_EXIT:
            ended = self.code == PERSON_NEEDED and "DONE" in self.printed
            return "" if ended else f"ended with {self.code}"
        if "hung" in self.verdicts:
            return "said to be hung"
        if self.victim.kind is Kind.LOOK_ALIKE:
            ended = self.code == 0 and ("DONE" in self.printed or self.victim.deed == "reader")
            return "" if ended else f"ended with {self.code}"
        wanted = "stopped" if self.victim.kind is Kind.STOPPED else "slow"
        return "" if wanted in self.verdicts else f"was not said to be {wanted}: {self.said}"

    def _wrong_with_hang(self) -> str:
        if self.quiet is None:
            return "the hang was not found"
        if self.victim.within is not None and self.quiet > self.victim.within:
            return f"late: {self.quiet:.1f} s"
        return "" if self.victim.place in self.stacks else "the stacks do not name the place"


def watch(victim: Victim, python: str, *, speed: float = 1.0, hurried: bool = False) -> Watched:
    """Run one victim in a folder of its own and report; ``hurried``: with less patience."""
    program = HURRIED if hurried else SUPERVISED
    folder = Path(tempfile.mkdtemp(prefix=f"rocsteady-{victim.name}-"))
    name = f"victim-{os.getpid()}-{threading.get_ident() % 100000}"
    environment = {**os.environ, "VICTIM_SPEED": str(speed), "HOME": str(folder)}
    environment["ROCSTEADY_RECORD_NAME"] = victim.name
    environment.pop("VIRTUAL_ENV", None)
    limit = _limit(victim, speed)
    start = time.monotonic()
    try:
        code, out, err = _carried_out(victim, python, program, name, folder, environment, limit)
        story = _story(name, folder, environment)
        stacks = "".join(
            path.read_text() for path in folder.glob(".rocsteady/runs/*/incident-*/stacks.txt")
        )
    finally:
        seconds = time.monotonic() - start
        left = _left_behind(name)
        shutil.rmtree(folder, ignore_errors=True)
    incidents = [found for found in story.get("incidents", []) if found["verdict"] == "hung"]
    return Watched(
        victim=victim,
        code=code,
        seconds=seconds,
        said=tuple(line for line in err.splitlines() if line.startswith("rocsteady:")),
        printed=out + err,
        quiet=incidents[0]["quiet"] if incidents else None,
        place=incidents[0]["place"] if incidents else "",
        stacks=stacks,
        left=left,
    )


def _limit(victim: Victim, speed: float) -> float:
    if victim.kind is Kind.LOOK_ALIKE:
        return victim.lasts(speed) * 2 + GRACE
    if victim.kind in (Kind.SLOW, Kind.STOPPED):
        return 75 + victim.rest + (75 if victim.kind is Kind.STOPPED else 0)
    return (victim.within or 60) + GRACE


def _carried_out(  # noqa: PLR0913, PLR0917 - all that a run is made of
    victim: Victim,
    python: str,
    program: tuple[str, ...],
    name: str,
    folder: Path,
    environment: dict[str, str],
    limit: float,
) -> tuple[int | None, str, str]:
    command = [*program, "run", "--name", name, "--max-attempts", "1", "--"]
    arguments = victim.command(python)
    if victim.deed in ("typist", "job control"):
        return _typed(victim, [*command, *arguments], folder, environment, limit)
    stdout = subprocess.PIPE
    reader = None
    if victim.deed == "reader":
        reader = subprocess.Popen(
            [sys.executable, str(victim.path.parent / "reader_stops.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
    said = folder / "said"  # by the supervisor
    with said.open("wb") as stream:
        child = subprocess.Popen(
            [*command, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=reader.stdin if reader else stdout,
            stderr=stream,
            env=environment,
            cwd=folder,
        )
    if reader and reader.stdin:
        reader.stdin.close()
        reader.stdin = None  # the supervisor's now
    if victim.deed == "suspend":
        threading.Timer(
            15, _suspend, args=(child.pid, victim.pause / float(environment["VICTIM_SPEED"]))
        ).start()
    if victim.kind is Kind.SLOW:  # it has no end; what is to be seen is that it is said
        _until_said(said, (b"rocsteady: slow ", b"rocsteady: starting "), limit)
        limit = 0
    try:
        out, _ = child.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        child.send_signal(signal.SIGTERM)
        out, _ = child.communicate(timeout=60)
        return None, (out or b"").decode(errors="replace"), said.read_text(errors="replace")
    if reader:
        out, _ = reader.communicate(timeout=60)
    return child.returncode, (out or b"").decode(errors="replace"), said.read_text(errors="replace")


def _until_said(path: Path, either: tuple[bytes, ...], within: float) -> None:
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        said = path.read_bytes()
        if any(words in said for words in either):
            return
        time.sleep(0.5)


def _suspend(pid: int, seconds: float) -> None:
    """Stop the watcher and everything below it, as a laptop's lid does, and continue it."""
    tree = [pid, *_descendants(pid)]
    for number in (signal.SIGSTOP, signal.SIGCONT):
        for each in tree:
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, number)
        if number is signal.SIGSTOP:
            time.sleep(seconds)


def _descendants(pid: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            parents.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found, queue = [], [pid]
    while queue:
        below = parents.get(queue.pop(), [])
        found += below
        queue += below
    return found


def _typed(
    victim: Victim, command: list[str], folder: Path, environment: dict[str, str], limit: float
) -> tuple[int | None, str, str]:
    """Run on a terminal, and type what a person would, after the pause."""
    pause = victim.pause / float(environment["VICTIM_SPEED"])
    job_control = victim.deed == "job control"
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        words = (
            ["bash", "--norc", "-i"] if job_control else ["sh", "-mc", 'exec "$@"', "sh", *command]
        )
        os.execvpe(words[0], words, environment)  # noqa: S606 - the person's shell
    written = bytearray()
    threading.Thread(target=_drain, args=(terminal, written), daemon=True).start()
    if job_control:
        time.sleep(1)
        line = " ".join(f"'{word}'" for word in command)
        os.write(terminal, f"{line}; echo CODE=$?=; exit\n".encode())
        time.sleep(15)
        os.write(terminal, b"\x1a")
        time.sleep(pause)
        os.write(terminal, b"fg; echo CODE=$?=; exit\n")
    else:
        time.sleep(15 + pause)
        os.write(terminal, b"c\n")
    deadline = time.monotonic() + limit
    status = 0
    while time.monotonic() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            break
        time.sleep(0.2)
    else:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return None, "", bytes(written).decode(errors="replace").replace("\r", "")
    text = bytes(written).decode(errors="replace").replace("\r", "")
    return os.waitstatus_to_exitcode(status), text, text


def _drain(terminal: int, written: bytearray) -> None:
    try:
        while chunk := os.read(terminal, 65536):
            written.extend(chunk)
    except OSError:
        return


def _story(name: str, folder: Path, environment: dict[str, str]) -> dict[str, Any]:
    told = subprocess.run(
        [*SUPERVISED, "report", name, "--json"],
        capture_output=True,
        check=False,
        cwd=folder,
        env=environment,
    )
    return json.loads(told.stdout) if told.returncode == 0 else {}


def _left_behind(name: str) -> tuple[str, ...]:
    left = [str(path) for path in Path("/dev/shm").glob(f"rocsteady-{name}*")]
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if f"ROCSTEADY_RUN={name}".encode() in environ.read_bytes():
                left.append((environ.parent / "cmdline").read_text().replace("\0", " "))
    return tuple(left)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", required=True)
    parser.add_argument("--speed", type=float, default=1.0)
    parser.add_argument("--repeat", type=int, default=1, help="of each hang")
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--at-once", type=int, default=2)
    arguments = parser.parse_args()
    chosen = [
        v
        for v in VICTIMS
        if v.kind is not Kind.HELPER and (not arguments.only or v.name in arguments.only)
    ]
    todo = [v for v in chosen for _ in range(arguments.repeat if v.kind is Kind.HANG else 1)]
    failed = 0
    delays: dict[str, list[float]] = {}
    with ThreadPoolExecutor(arguments.at_once) as pool:
        for seen in pool.map(lambda v: watch(v, arguments.python, speed=arguments.speed), todo):
            wrong = seen.wrong
            failed += bool(wrong)
            if seen.quiet is not None:
                delays.setdefault(seen.victim.name, []).append(seen.quiet)
            quiet = seen.quiet
            found = f"ended {seen.code}" if quiet is None else f"hung after {quiet:.1f} s"
            row = (
                f"{seen.victim.kind.value:<11}{seen.victim.name:<28}{seen.seconds:6.0f} s  {found}"
            )
            print(f"{'WRONG' if wrong else 'ok':<6}{row}  {wrong}".rstrip(), flush=True)
    for name, times in delays.items():
        median = statistics.median(times)
        print(f"{name:<28} median {median:.1f} s of {len(times)}, most {max(times):.1f} s")
    print(f"{len(todo) - failed} as they should be, {failed} not")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
