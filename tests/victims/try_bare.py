"""Runs victims with nobody watching, and tells whether each is what the table says.

`try_bare.py --python PYTHON [--speed 10] [NAME ...]`, in an environment that has py-spy, with the
interpreter that has torch. What must hang must be found hanging, at its place; what must end must
end with DONE and 0. Leaves no process and no file behind.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from cases import BY_NAME, HERE, VICTIMS, Kind, Victim

MARK = "VICTIM_TRIED"  # in the environment of all that a victim starts
QUIET = 6.0  # seconds without a new line, after which a look is taken
LOOKS = 2  # that must agree
PATIENCE = 150.0  # seconds for a victim to come to its place
PY_SPY = shutil.which("py-spy", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")


class NotAsSaidError(Exception):
    """The victim is not what the table says."""


@dataclass(frozen=True)
class Trial:
    """One run of one victim, in a folder of its own."""

    victim: Victim
    python: str
    speed: float
    folder: Path
    mark: str

    @property
    def output(self) -> Path:
        """Where all that it prints goes."""
        return self.folder / "output.txt"

    def printed(self) -> str:
        return self.output.read_text(encoding="utf-8", errors="replace")

    def different_lines(self) -> int:
        """Give how many different lines were printed, the clocks of progress bars left out."""
        return len(set(re.sub(r"\[[\d:]+\]", "", self.printed()).splitlines()))

    def start(self) -> subprocess.Popen[bytes]:
        """Start it as a person would, with what it needs beside it."""
        settings = {MARK: self.mark, "VICTIM_SPEED": str(self.speed), "TMPDIR": str(self.folder)}
        env = {**os.environ, **settings}
        command, script = self.victim.command(self.python), str(self.victim.path)
        if self.victim.deed == "daemon":
            socket = str(self.folder / "daemon.sock")
            beside = [self.python, script, "--daemon", socket]
            subprocess.Popen(beside, env=env, start_new_session=True)
            command.append(socket)
        if self.victim.deed == "reader":
            shell = 'reader=$1; shift; "$@" | "$0" "$reader"'
            command = ["sh", "-c", shell, self.python, str(HERE / "reader_stops.py"), *command]
        with self.output.open("wb") as sink:
            return subprocess.Popen(
                command,
                cwd=self.folder,
                env=env,
                stdin=subprocess.PIPE,
                stdout=sink,
                stderr=sink,
                start_new_session=True,
            )

    def processes(self) -> list[int]:
        """Give the processes that it started, whatever became of their parents."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # gone, or not ours
                if f"{MARK}={self.mark}".encode() in (folder / "environ").read_bytes():
                    found.append(int(folder.name))
        return found

    def end(self) -> None:
        """End all that it started."""
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def stacks(pid: int, *, native: bool) -> str:
    """Give the stacks of a process and of all below it."""
    how = "--native" if native else "--nonblocking"
    command = [str(PY_SPY), "dump", "--subprocesses", "--pid", str(pid), how]
    seen = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return seen.stdout + seen.stderr


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]


def see_it_stay(trial: Trial, process: subprocess.Popen[bytes]) -> str:
    """Wait until two looks, with nothing printed before and between, find it at its place."""
    began = changed = time.monotonic()
    printed, seen, stack, frame = -1, 0, "", ""
    while seen < LOOKS:
        time.sleep(0.5)
        if process.poll() is not None:
            raise NotAsSaidError(f"it ended, with {process.returncode}")
        if (count := trial.different_lines()) != printed:
            printed, seen, changed = count, 0, time.monotonic()
        if time.monotonic() - changed > QUIET:
            stack = stacks(process.pid, native=trial.victim.native)
            frames = [line for line in stack.splitlines() if not line.startswith("Thread")]
            frame = next((line.strip() for line in frames if trial.victim.place in line), "")
            seen = seen + 1 if frame else 0
        if time.monotonic() - began > PATIENCE:
            raise NotAsSaidError(f"not seen to stay in {trial.victim.place}:\n{stack}")
    return frame


def see_it_stopped(trial: Trial, process: subprocess.Popen[bytes]) -> str:
    """See it stopped at its place, continue it as often as it needs, and see it end."""
    stops, began = 0, time.monotonic()
    while process.poll() is None and time.monotonic() - began < PATIENCE:
        if state_of(process.pid) == "T":
            stack = stacks(process.pid, native=False)
            if trial.victim.place not in stack:
                raise NotAsSaidError(f"stopped elsewhere:\n{stack}")
            stops += 1
            process.send_signal(signal.SIGCONT)
        time.sleep(0.5)
    see_it_end(trial, process)
    return f"state T, continued {stops} times, DONE"


def see_it_end(trial: Trial, process: subprocess.Popen[bytes]) -> str:
    """Do what the table asks for, and see it end well."""
    began, pause = time.monotonic(), trial.victim.pause / trial.speed
    awaited = {"typist": "(Pdb)", "job control": "step 100", "suspend": "step 100"}
    while awaited.get(trial.victim.deed, "") not in trial.printed() and process.poll() is None:
        time.sleep(0.2)
    if trial.victim.deed == "typist" and process.stdin:
        time.sleep(pause)
        process.stdin.write(b"c\n")
        process.stdin.flush()
    elif trial.victim.deed in awaited:
        process.send_signal(signal.SIGSTOP)
        time.sleep(pause)
        process.send_signal(signal.SIGCONT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(2 * trial.victim.lasts(trial.speed) + PATIENCE)
    if process.returncode != 0 or "DONE" not in trial.printed():
        raise NotAsSaidError(f"ended with {process.returncode}, and not with DONE")
    return f"0 and DONE after {time.monotonic() - began:.1f} s"


def try_one(victim: Victim, python: str, speed: float) -> str:
    """Run one victim, and say in one clause what was seen."""
    look = {Kind.LOOK_ALIKE: see_it_end, Kind.HELPER: see_it_end, Kind.STOPPED: see_it_stopped}
    with tempfile.TemporaryDirectory(prefix="victim-") as folder:
        trial = Trial(victim, python, speed, Path(folder), uuid.uuid4().hex)
        process = trial.start()
        try:
            return look.get(victim.kind, see_it_stay)(trial, process)
        except NotAsSaidError as wrong:
            return f"NOT AS SAID: {wrong}\n{trial.printed()[-2000:]}"
        finally:
            trial.end()


def main() -> int:
    parser = argparse.ArgumentParser(description="run victims with nobody watching")
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has torch")
    parser.add_argument("--speed", type=float, default=10)
    parser.add_argument("names", nargs="*", help="all but the helpers if none is given")
    args = parser.parse_args()
    chosen = [BY_NAME[name] for name in args.names]
    wrong = 0
    for victim in chosen or [v for v in VICTIMS if v.kind is not Kind.HELPER]:
        said = try_one(victim, args.python, args.speed)
        wrong += said.startswith("NOT AS SAID")
        print(f"{victim.name:28} {victim.kind.value:10} {said}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
