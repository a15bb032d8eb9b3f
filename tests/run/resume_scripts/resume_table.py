"""Thirty training scripts without a job file, each killed once and deadlocked once.

    python tests/run/resume_scripts/resume_table.py --python PYTHON_WITH_TORCH [NAME ...]

prints a table. A script counts as resumed at the right step if its final weights are, bit by bit,
those of an undisturbed run. One that is not to be resumed must say so in the first line, and leave
every file as it was.
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
import time
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
README_SCRIPT = HERE.parents[2] / "examples/first_run/train.py"
COMPARE = """
import sys, torch
a, b = (torch.load(path, weights_only=True) for path in sys.argv[1:])
sys.exit(not (a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)))
"""
BASE = """
import torch
torch.manual_seed(7)
torch.save({"model": torch.nn.Linear(4, 1).state_dict()}, "base.pt")
"""
WITHIN = 240.0  # seconds for one run


class Case(NamedTuple):
    """One script, and how it is started."""

    name: str
    command: tuple[str, ...]  # after python, or a program
    resumes: bool = True
    final: str = "final.pt"
    undisturbed: tuple[str, ...] = ()  # arguments for the run that it is compared with
    kill_at: int = 25
    hang_at: int | None = 15  # steps after the restart; None: the script has its own deadlock


def cases() -> tuple[Case, ...]:
    """Return all thirty."""
    arguments = {"t05_snapshot": ("6", "1"), "u23_finetune": ("--checkpoint", "base.pt")}
    refused = {"t03_cifar", "t07_dcgan", "u22_wandb_id", "u24_rmtree"}
    names = sorted(path.stem for path in (HERE / "scripts").glob("*.py"))
    own = (
        Case(
            "t09_readme",
            ("train.py",),
            final="model.pt",
            undisturbed=("--workers", "0"),
            kill_at=120,
            hang_at=None,
        ),
        Case("f19_nnunet", ("nnUNetv2_train", "001", "2d", "0")),
        Case("f20_trl", ("trl", "sft", "--output_dir", "sft-out")),
    )
    scripts = (
        Case(name, (f"{name}.py", *arguments.get(name, ())), name not in refused) for name in names
    )
    return tuple(sorted((*scripts, *own)))


def beside_torch(python: str, folder: Path) -> str:
    """Make an environment that has what another has, and the stand-ins."""
    subprocess.run([python, "-m", "venv", "--without-pip", folder], check=True)
    asked = [python, "-c", "import torch; print(torch.__path__[0])"]
    torch = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "resume.pth").write_text(f"{Path(torch).parent}\n{HERE / 'stand_ins'}\n")
    return str(folder / "bin" / "python")


def prepare(case: Case, folder: Path, python: str) -> tuple[list[str], dict[str, str]]:
    """Put the script and what lies beside it into a folder; return how to start it."""
    shutil.copytree(HERE / "scripts" / "helpers", folder, dirs_exist_ok=True)
    script = HERE / "scripts" / case.command[0]
    if case.command[0].endswith(".py"):
        shutil.copy(script if script.exists() else README_SCRIPT, folder)
    environment = {
        **os.environ,
        "HOME": str(folder.parent),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PATH": os.pathsep.join(
            (str(HERE / "stand_ins/bin"), str(Path(python).parent), os.environ["PATH"])
        ),
    }
    if "base.pt" in case.command:
        subprocess.run([python, "-c", BASE], cwd=folder, env=environment, check=True)
    starts = ["python"] if case.command[0].endswith(".py") else []
    return [*starts, *case.command], environment


def hashes(folder: Path) -> dict[str, str]:
    """Return what is in each file of a folder."""
    files = (
        path for path in folder.rglob("*") if path.is_file() and ".rocsteady" not in path.parts
    )
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }


class Result(NamedTuple):
    """What came of one case."""

    name: str
    right: bool
    what: str
    seconds: float
    lines: list[str]


def undisturbed(case: Case, base: Path, python: str) -> Path:
    """Train once without rocsteady."""
    folder = base / "undisturbed"
    folder.mkdir(parents=True)
    command, environment = prepare(case, folder, python)
    subprocess.run(
        [*command, *case.undisturbed],
        cwd=folder,
        env=environment,
        check=True,
        capture_output=True,
        timeout=WITHIN,
    )
    return folder / case.final


def disturbed(case: Case, base: Path, python: str, rocsteady: list[str]) -> Result:
    """Train with a kill and a deadlock below ``rocsteady run``, and compare."""
    expected = undisturbed(case, base, python) if case.resumes else None
    folder, marks = base / "disturbed", base / "marks"
    folder.mkdir()
    marks.mkdir()
    command, environment = prepare(case, folder, python)
    faults = [{"kind": "kill", "place": "step", "at": case.kill_at}]
    if case.hang_at is not None:
        faults.append({"kind": "hang", "place": "step", "at": case.hang_at})
        (marks / "1.fired").touch()  # the deadlock waits until the kill was done
    plan = {"version": 1, "before": 0, "folder": str(marks), "faults": faults}
    environment["ROCSTEADY_FAULTS"] = json.dumps(plan)
    began = time.monotonic()
    with (base / "output").open("wb") as output:
        child = subprocess.Popen(
            [*rocsteady, "run", "--yes", "--", *command],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        at_kill: dict[str, str] = {}
        while child.poll() is None and time.monotonic() - began < WITHIN:
            if not at_kill and (marks / "0.fired").exists():
                time.sleep(0.1)
                at_kill = hashes(folder)
                (marks / "1.fired").unlink(missing_ok=True)
            time.sleep(0.05)
        if child.poll() is None:
            child.terminate()
            child.wait(60)
    text = (base / "output").read_text(errors="replace")
    lines = [line for line in text.splitlines() if line.startswith("rocsteady: ")]
    took = time.monotonic() - began
    if case.resumes:
        final = folder / case.final
        files = [str(final), str(expected)]
        same = (
            final.exists()
            and subprocess.run([python, "-c", COMPARE, *files], check=False).returncode == 0
        )
        hung = any(" hung" in line for line in lines)
        what = "resumed at the right step" if same else "NOT the weights of an undisturbed run"
        what += "" if hung else ", NO deadlock"
        return Result(
            case.name,
            same and hung and child.returncode == 0,
            f"{what} (exit {child.returncode})",
            took,
            lines,
        )
    now = hashes(folder)
    lost = [name for name in at_kill if now.get(name) != at_kill[name]]
    announced = any("will be stopped" in line for line in lines[:3])
    what = f"LOST {', '.join(lost)}" if lost else "not resumed, nothing lost"
    what += ", said so at the start" if announced else ", NOT ANNOUNCED"
    return Result(
        case.name, not lost and announced, f"{what} (exit {child.returncode})", took, lines
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=sys.executable, help="an interpreter with torch")
    parser.add_argument("--rocsteady", default=f"{sys.executable} -m rocsteady")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("names", nargs="*")
    given = parser.parse_args()
    results = []
    home = Path(tempfile.mkdtemp(prefix="resume-python-"))
    python = beside_torch(given.python, home / "venv")
    for case in cases():
        if given.names and not any(name in case.name for name in given.names):
            continue
        base = Path(tempfile.mkdtemp(prefix=f"resume-{case.name}-"))
        try:
            result = disturbed(case, base, python, given.rocsteady.split())
        except (subprocess.SubprocessError, OSError) as error:
            result = Result(case.name, right=False, what=repr(error), seconds=0.0, lines=[])
        finally:
            shutil.rmtree(base, ignore_errors=True)
        results.append(result)
        print(
            "ok " if result.right else "BAD",
            f"{result.name:24} {result.seconds:5.0f} s  {result.what}",
            flush=True,
        )
        print(
            f"      {result.lines[0].removeprefix('rocsteady: ')[:160]}" if result.lines else "",
            flush=True,
        )
        if given.verbose or not result.right:
            print("\n".join(f"    | {line}" for line in result.lines[1:]), flush=True)
    shutil.rmtree(home)
    right = sum(result.right for result in results)
    print(f"{right} of {len(results)} as they should be")


if __name__ == "__main__":
    main()
