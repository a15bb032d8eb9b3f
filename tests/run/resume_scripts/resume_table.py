"""Training scripts without a job file, each killed once and deadlocked once.

    python tests/run/resume_scripts/resume_table.py --python PYTHON_WITH_TORCH [NAME ...]

prints a table. ``--results FILE`` keeps the results as JSON lines; those that are in it are not run
again. A script has resumed at the right step if its weights after each step are, bit by bit, those
of an undisturbed run, from the last step that was saved on. Nothing is lost if every file that an
undisturbed run writes is there with the same content. A script that is not to be resumed must say
so in the first line, and leave every file as it was.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
README_SCRIPT = HERE.parents[2] / "examples/first_run/train.py"
LOST = HERE / "lost_files.py"
BASE = """
import torch
torch.manual_seed(7)
torch.save({"model": torch.nn.Linear(4, 1).state_dict()}, "base.pt")
"""
WITHIN = 480.0  # seconds for one run, on a machine that has other things to do
KILL, HANG = "kill", "hang"


class Case(NamedTuple):
    """One script, and how it is started."""

    name: str
    command: tuple[str, ...]  # after python, or a program
    resumes: bool | None = True  # None: either
    undisturbed: tuple[str, ...] = ()  # arguments for the run that it is compared with
    at: int = 25
    saves: int = 10  # steps from one checkpoint to the next
    dry: int = 0  # steps that each start makes before it loads
    deadlocks: bool = False  # by itself
    held_out: bool = False


def cases() -> tuple[Case, ...]:
    """Return all thirty."""
    arguments = {"t05_snapshot": ("6", "1"), "u23_finetune": ("--checkpoint", "base.pt")}
    refused = {"t03_cifar", "t07_dcgan", "u22_wandb_id", "u24_rmtree"}
    names = sorted(path.stem for path in (HERE / "scripts").glob("*.py"))
    own = (
        Case(
            "t09_readme",
            ("train.py",),
            undisturbed=("--workers", "0"),
            at=120,
            saves=50,
            deadlocks=True,
        ),
        Case("f19_nnunet", ("nnUNetv2_train", "001", "2d", "0")),
        Case("f20_trl", ("trl", "sft", "--output_dir", "sft-out")),
    )
    scripts = (
        Case(
            name,
            (f"{name}.py", *arguments.get(name, ())),
            name not in refused,
            dry=int(name == "u29_late_load"),
        )
        for name in names
    )
    return tuple(sorted((*scripts, *own)))


def held_out_cases() -> tuple[Case, ...]:
    """Return those that were written without a look at what detects a way to resume."""
    arguments = {"h36_subcommands": ("fit",)}
    names = sorted(path.stem for path in (HERE / "held_out").glob("*.py"))
    scripts = (
        Case(name, (f"{name}.py", *arguments.get(name, ())), None, held_out=True) for name in names
    )
    return (*scripts, Case("h34_package", ("-m", "h34_package"), None, held_out=True))


def beside_torch(python: str, folder: Path) -> str:
    """Make an environment that has what another has, and the stand-ins."""
    subprocess.run([python, "-m", "venv", "--without-pip", folder], check=True)
    asked = [python, "-c", "import torch; print(torch.__path__[0])"]
    torch = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    (packages,) = folder.glob("lib/python*/site-packages")
    recorder = "import os; 'RESUME_RECORDER' in os.environ and __import__('resume_recorder')"
    lines = (str(Path(torch).parent), str(HERE / "stand_ins"), recorder)
    (packages / "resume.pth").write_text("\n".join(lines))
    return str(folder / "bin" / "python")


def prepare(
    case: Case, folder: Path, python: str, faults: list[dict[str, Any]]
) -> tuple[list[str], dict[str, str]]:
    """Put the script and what lies beside it into a folder; return how to start it."""
    folder.mkdir(parents=True)
    scripts = HERE / ("held_out" if case.held_out else "scripts")
    shutil.copytree(scripts / "helpers", folder, dirs_exist_ok=True)
    first = case.command[0]
    if first.endswith(".py"):
        shutil.copy(scripts / first if (scripts / first).exists() else README_SCRIPT, folder)
    home, traces = folder.parent / "home", traces_of(folder)
    home.mkdir(exist_ok=True)
    traces.mkdir()
    environment = {
        **{name: text for name, text in os.environ.items() if not name.startswith("XDG_")},
        "HOME": str(home),
        "PYTHONDONTWRITEBYTECODE": "1",
        "RESUME_RECORDER": json.dumps({"folder": str(traces), "faults": faults}),
        "PATH": os.pathsep.join(
            (str(HERE / "stand_ins/bin"), str(Path(python).parent), os.environ["PATH"])
        ),
    }
    if "base.pt" in case.command:
        subprocess.run([python, "-c", BASE], cwd=folder, env=environment, check=True)
    starts = ["python"] if first.endswith(".py") or first.startswith("-") else []
    return [*starts, *case.command], environment


def traces_of(folder: Path) -> Path:
    """Return where the weights after each step of a run are noted."""
    return folder.with_name(f"{folder.name}-traces")


def traced(folder: Path) -> list[list[str]]:
    """Return the weights after each step, for each process that made steps, oldest first."""
    files = sorted(traces_of(folder).glob("trace-*"), key=lambda path: path.stat().st_mtime_ns)
    return [path.read_text().split() for path in files]


def hashes(folder: Path) -> dict[str, str]:
    """Return what is in each file of a folder."""
    files = (
        path for path in folder.rglob("*") if path.is_file() and ".rocsteady" not in path.parts
    )
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }


class Start(NamedTuple):
    """Where one start of the script went on, in steps that were done."""

    at: int | None  # None: not one of the undisturbed run
    expected: int
    last: int


class Result(NamedTuple):
    """What came of one case."""

    name: str
    fault: str
    right: bool
    resumed: bool
    first: str
    starts: list[Start]
    total: int
    lost: list[str]
    code: int
    seconds: float
    lines: list[str]


def starts_of(case: Case, steps: list[str], attempts: list[list[str]]) -> list[Start]:
    """Find where each attempt continued, by the weights."""
    number = {digest: index for index, digest in enumerate(steps, start=1)}
    starts, reached = [], 0
    for attempt in attempts:
        places = [number.get(digest) for digest in attempt]
        first = len(places) - 1
        while first and places[first] and places[first - 1] == (places[first] or 0) - 1:
            first -= 1
        expected = max(0, (reached - case.dry) // case.saves * case.saves + case.dry)
        place = places[first]
        starts.append(Start(None if place is None else place - 1, expected, places[-1] or 0))
        reached = max(reached, places[-1] or 0)
    return starts


def undisturbed(case: Case, base: Path, python: str) -> Path:
    """Train once without rocsteady."""
    folder = base / "undisturbed"
    command, environment = prepare(case, folder, python, [])
    subprocess.run(
        [*command, *case.undisturbed],
        cwd=folder,
        env=environment,
        check=True,
        capture_output=True,
        timeout=WITHIN,
    )
    return folder


def disturbed(
    case: Case, base: Path, python: str, rocsteady: list[str], kinds: tuple[str, ...] = (KILL, HANG)
) -> Result:
    """Train with faults below ``rocsteady run``, and compare."""
    reference = undisturbed(case, base, python)
    folder = base / "disturbed"
    faults = [
        {"kind": kind, "at": 15 if later else case.at}
        for later, kind in enumerate(kinds)
        if not (kind == HANG and case.deadlocks)
    ]
    command, environment = prepare(case, folder, python, faults)
    began = time.monotonic()
    at_fault: dict[str, str] = {}
    with (base / "output").open("wb") as output:
        child = subprocess.Popen(
            [*rocsteady, "run", "--", *command],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        while child.poll() is None and time.monotonic() - began < WITHIN:
            if not at_fault and (traces_of(folder) / "fault-0").exists():
                at_fault = hashes(folder)
            time.sleep(0.05)
        if child.poll() is None:
            child.terminate()
            child.wait(60)
    took = time.monotonic() - began
    text = (base / "output").read_text(errors="replace")
    lines = [line for line in text.splitlines() if line.startswith("rocsteady: ")]
    (steps,) = traced(reference)
    starts = starts_of(case, steps, traced(folder))
    resumed = child.returncode == 0
    if resumed:
        asked = [python, str(LOST), str(reference), str(folder)]
        found = subprocess.run(asked, check=True, capture_output=True, text=True)
        lost: list[str] = json.loads(found.stdout)
        right = (
            len(starts) > len(faults)
            and all(start.at == start.expected for start in starts)
            and starts[-1].last == len(steps)
        )
    else:
        now = hashes(folder)
        lost = [name for name, content in at_fault.items() if now.get(name) != content]
        right = any("cannot resume" in line for line in lines[:3])
    return Result(
        name=case.name,
        fault="+".join(kinds),
        right=right and not lost and case.resumes in {resumed, None},
        resumed=resumed,
        first=lines[0].removeprefix("rocsteady: ") if lines else "",
        starts=starts,
        total=len(steps),
        lost=lost,
        code=child.returncode,
        seconds=took,
        lines=lines,
    )


def row(result: Result) -> str:
    """Return one line for a case."""
    told = ", ".join(
        f"at {start.at} of {start.expected} (to {start.last})" for start in result.starts[1:]
    )
    what = f"resumed {told}; ended at {result.starts[-1].last}/{result.total}" if told else ""
    if not result.resumed:
        what = f"not resumed {told}"
    lost = f"LOST {', '.join(result.lost)}" if result.lost else "nothing lost"
    verdict = "ok " if result.right else "BAD"
    return (
        f"{verdict} {result.name:22} {result.fault:9} {result.seconds:4.0f} s  exit {result.code}"
        f"  {what}; {lost}\n      {result.first}"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=sys.executable, help="an interpreter with torch")
    parser.add_argument("--rocsteady", default=f"{sys.executable} -m rocsteady")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--results", type=Path, help="JSON lines; what is there is not run again")
    parser.add_argument("--together", action="store_true", help="both in one run, to save time")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("names", nargs="*")
    given = parser.parse_args()
    results: list[Result] = []
    if given.results and given.results.exists():
        for line in given.results.read_text().splitlines():
            known = json.loads(line)
            starts = [Start(*start) for start in known.pop("starts")]
            results.append(Result(starts=starts, **known))
    known_ones = {(result.name, result.fault) for result in results}
    home = Path(tempfile.mkdtemp(prefix="resume-python-"))
    python = beside_torch(given.python, home / "venv")
    writing = threading.Lock()

    def one(case: Case, faults: tuple[str, ...]) -> None:
        base = Path(tempfile.mkdtemp(prefix=f"resume-{case.name}-"))
        try:
            result = disturbed(case, base, python, given.rocsteady.split(), faults)
        except (subprocess.SubprocessError, OSError, ValueError) as error:
            print(f"BAD {case.name} {faults} {error!r}", flush=True)
            return
        finally:
            shutil.rmtree(base, ignore_errors=True)
        with writing:
            results.append(result)
            if given.results:
                with given.results.open("a") as file:
                    file.write(json.dumps(result._asdict()) + "\n")
            print(row(result), flush=True)
            if given.verbose or not result.right:
                print("\n".join(f"    | {line}" for line in result.lines[1:]), flush=True)

    with ThreadPoolExecutor(given.jobs) as pool:
        for case in (*cases(), *held_out_cases()):
            separate = not given.together or case.resumes is False
            for faults in ((KILL,), (HANG,)) if separate else ((KILL, HANG),):
                wanted = not given.names or any(name in case.name for name in given.names)
                if wanted and (case.name, "+".join(faults)) not in known_ones:
                    pool.submit(one, case, faults)
    shutil.rmtree(home)
    print("\n".join(row(result) for result in sorted(results)))
    right = sum(result.right for result in results)
    resumed = sum(result.right and result.resumed for result in results)
    lost = sum(bool(result.lost) for result in results)
    print(
        f"{len(results)} runs: {right} as they should be, {resumed} resumed at the right step,"
        f" {lost} lost something"
    )


if __name__ == "__main__":
    main()
