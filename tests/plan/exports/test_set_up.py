"""The four jobs reach their first training step by what each export says, in a clean environment.

The torch line is replaced by a CPU build, for each target the only one. What stands in for a
runtime that is not here runs the same shell lines, read from the file by a reader of its format.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import distributions
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

if os.name == "nt":
    pytest.skip("runs are of POSIX; Windows is unconfirmed", allow_module_level=True)

from markdown_it import MarkdownIt
from slurm_cluster import Cluster, cluster, missing
from supervised import Project, until
from torch_alone import PATH_FILE, link_torch

from rocsteady.plan.exports.targets import TARGETS as EXPORTS

pytestmark = pytest.mark.slow  # each takes a minute or more

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[2]
MACHINE = HERE.parents[1] / "machines" / "rx7900xtx.json"
JOBS = ("predator_prey", "futures", "detector", "eeg")
NEEDED = {"predator_prey": {"numpy", "matplotlib"}, "futures": {"numpy", "matplotlib"}}
NEEDED |= {"detector": {"numpy", "matplotlib"}, "eeg": {"numpy", "matplotlib", "mne"}}
TORCH_LINE = re.compile(r"^python3 -m pip install (?!-c ).*\btorch\b.*$", re.MULTILINE)
OVER = ("COMPLETED", "FAILED", "CANCELLED")  # a job of Slurm
LONGER = {  # than the small size, where that ends before a second start
    "predator_prey": ("--checkpoint_every", "1"),
    "futures": ("--epochs", "500", "--checkpoint_every", "20"),
    "detector": ("--epochs", "100"),
}
WITHIN = 900.0  # seconds: on a busy machine, an installation takes its time


class Place:
    """A project as it was copied to where it runs, with nothing installed."""

    def __init__(self, project: Project, torch: Path, tools: Path) -> None:
        self.project, self.torch, self.tools = project, torch, tools
        self.folder = project.folder  # where it runs
        self.bin = project.home / "bin"
        self.bin.mkdir()
        self.program("python3", f'exec "{Path(sys.executable).resolve()}" "$@"')
        self.environment = {
            **project.environment,
            "PATH": f"{self.bin}:/usr/bin:/bin",
            "OMP_NUM_THREADS": "1",
            # Half of the time: what is not imported is not compiled, what was fetched is kept.
            "PIP_NO_COMPILE": "0",  # pip takes it for the value of --compile
            "PIP_CACHE_DIR": str(Path.home() / ".cache" / "pip"),
        }
        del self.environment["PYTHONDONTWRITEBYTECODE"]

    def program(self, name: str, text: str) -> None:
        """Write a program that stands in for one that is not here."""
        (self.bin / name).write_text(f"#!/bin/sh\n{text}\n")
        (self.bin / name).chmod(0o755)

    def file(self, pattern: str) -> Path:
        """Return the only file of this name."""
        (path,) = self.project.folder.glob(pattern)
        return path

    def read(self, pattern: str) -> Any:  # noqa: ANN401 - YAML
        """Return what a reader of its format finds in a file."""
        words = [self.tools / "python", HERE / "read_exported.py", self.file(pattern)]
        return json.loads(subprocess.run(words, check=True, capture_output=True).stdout)

    def with_torch_of_cpu(self, script: str) -> str:
        """Replace the line that installs torch."""
        site = '"$VIRTUAL_ENV"/lib/python3*/site-packages/'
        replaced, count = TORCH_LINE.subn(f"cp {self.torch} {site}", script)
        assert count == 1, script
        return replaced

    def image(self, **variables: str) -> None:
        """Stand in for an image: an environment with torch, and nothing else."""
        made = self.project.home / "image"
        self.run(f"python3 -m venv {made}")
        shutil.copy(self.torch, next(made.glob("lib/python3*/site-packages")) / PATH_FILE)
        self.environment["PATH"] = f"{made}/bin:{self.environment['PATH']}"
        self.environment |= variables

    def run(self, script: str, interpreter: str = "bash") -> None:
        """Carry out a script to its end."""
        words = [interpreter, "-c", script]
        where: dict[str, Any] = {"cwd": self.folder, "env": self.environment}
        done = subprocess.run(words, check=False, capture_output=True, text=True, **where)
        assert done.returncode == 0, f"{script}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"

    def train(self, *command: str) -> None:
        """Start the command that trains, and stop the run after a step."""
        log = self.project.home / "training.log"
        with log.open("wb") as out:
            child = subprocess.Popen(
                command,
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.project.started.append(child)
        self.stop_after_a_step(lambda: child.poll() is not None, log)
        child.wait(60.0)

    def stop_after_a_step(self, ended: Callable[[], bool], log: Path) -> None:
        """Wait for a step, and stop the run as a person would."""

        def why() -> str:
            return log.read_text(errors="replace")[-4000:] if log.exists() else ""

        def step() -> int:
            over = ended()  # before looking: a run may have ended well in between
            time.sleep(1.0)
            found = max((line["step"] or 0 for line in self.known()), default=0)
            assert found or not over, why()
            return found

        until(lambda: step() >= 1, WITHIN, why)
        self.rocsteady("stop", self.runs()[0]["run"]["name"])

    def runs(self) -> list[dict[str, Any]]:
        """Return the runs in the folder."""
        return list(json.loads(self.rocsteady("status", "--json"))["runs"])

    def known(self) -> list[dict[str, Any]]:
        """Return the runs in the folder, the last one first; before the first there are none."""
        return self.runs() if (self.folder / ".rocsteady").exists() else []

    def rocsteady(self, *words: str) -> str:
        """Carry out a command beside the run."""
        where: dict[str, Any] = {"cwd": self.folder, "env": self.environment}
        line = [sys.executable, "-m", "rocsteady", *words]
        done = subprocess.run(line, check=False, capture_output=True, text=True, **where)
        assert done.returncode == 0 or words[0] == "stop", done.stderr  # it may have ended
        return str(done.stdout)


def wsl2(place: Place) -> None:
    """Type what the guide says from the project on; Windows and the check of the GPU are left."""
    place.program("wslpath", 'echo "$2"')
    tokens = MarkdownIt().parse(place.file("wsl2-guide.md").read_text())
    chapter, chapters = "", dict[str, str]()
    for before, token in pairwise(tokens):
        if before.type == "heading_open":
            chapter = token.content
        elif token.type == "fence" and token.info == "bash":
            chapters[chapter] = token.content
    wanted = ("3. The project", "4. torch and the rest", "6. Train")
    typed = "".join(chapters[each] for each in wanted)
    (there,) = re.findall(r"^cd ~/(.*)$", typed, re.MULTILINE)
    place.folder = place.project.home / there
    place.folder.mkdir()
    place.train("bash", "-ec", place.with_torch_of_cpu(typed))


def skypilot(place: Place) -> None:
    """Set up and run in a copy of the folder, each in a shell of its own."""
    (task,) = place.read("*.yaml")
    place.folder = place.project.home / "sky_workdir"
    shutil.copytree(place.project.folder, place.folder)
    place.run(place.with_torch_of_cpu(task["setup"]))
    place.train("bash", "-c", task["run"])


def container(place: Place) -> None:
    """Do what Docker would be told, with another folder as the root of the image."""
    place.image()
    told = place.project.home / "told"
    place.program("docker", f'printf "%s\\0" "$@" > {told}-"$1"')
    place.program("stat", "echo 44")  # of devices that are not here
    place.run("bash run-in-container.sh")
    build, run = (Path(f"{told}-{each}").read_text().split("\0")[:-1] for each in ("build", "run"))
    root, copied = place.project.home / "root", list[str]()
    for instruction, value in place.read(build[build.index("--file") + 1]):
        if instruction == "ENV":
            place.environment |= dict(word.split("=", 1) for word in shlex.split(value))
        elif instruction == "COPY":
            source, target = json.loads(value)
            copy_into(root, place.folder / source, target)
            copied.append(target.rstrip("/"))
        elif instruction == "RUN":
            inside = re.sub("|".join(copied), lambda found: f"{root}{found[0]}", value)
            place.run(inside, interpreter="sh")
    tag = build[build.index("--tag") + 1]
    place.train(*run[run.index(tag) + 1 :])


def copy_into(root: Path, source: Path, target: str) -> None:
    """Copy a file or a folder to where it is in the image."""
    there = Path(f"{root}{target}")
    there.parent.mkdir(parents=True, exist_ok=True)
    (shutil.copytree if source.is_dir() else shutil.copy)(source, there)


def slurm(place: Place) -> None:
    """Do once what the file says, then submit it to a real Slurm; without one, run it in bash."""
    file = place.file("*.sbatch")
    once = "\n".join(re.findall(r"^#     (.*)$", file.read_text(), re.MULTILINE))
    place.run(f"set -e\n{place.with_torch_of_cpu(once)}")
    if missing() or os.geteuid() != 0:
        place.train("bash", str(file))
        return
    (folder := place.project.home / "slurm").mkdir()
    with cluster(folder) as made:
        made.environment |= {"HOME": str(place.project.home), "OMP_NUM_THREADS": "1"}
        submitted(place, made, file)
        submitted(place, made, file)


def submitted(place: Place, made: Cluster, file: Path) -> None:
    """Submit a batch file; stop its run when it has gone on from where the one before had saved."""
    before, runs, number = newest(place), len(place.known()), made.submit(file)
    log = place.folder / f"{file.stem}-{number}.log"

    def why() -> str:
        return log.read_text(errors="replace")[-4000:] if log.exists() else made.log()

    def trained() -> bool:
        assert made.job(number)["JobState"] not in OVER, why()
        known = place.known()
        goes_on = len(known) > runs and (known[0]["step"] or 0) > before
        return goes_on and newest(place) > 0

    until(trained, WITHIN, why)
    place.rocsteady("stop", place.runs()[0]["run"]["name"])
    made.until(number, *OVER)
    (attempt,) = json.loads(place.rocsteady("report", "--json"))["attempts"]
    assert attempt["first_step"] > before, why()


def newest(place: Place) -> int:
    """Return the step of the newest checkpoint; 0 before there is one."""
    saved = place.folder.glob("output/checkpoints/step-*.pt")
    return max((int(path.stem.removeprefix("step-")) for path in saved), default=0)


def kubernetes(place: Place) -> None:
    """Start what the pod starts."""
    (job,) = place.read("*-job.yaml")
    (inside,) = job["spec"]["template"]["spec"]["containers"]
    pod(place, inside, inside["command"])


def pod(place: Place, inside: dict[str, Any], command: list[str]) -> None:
    """Start a container of a pod; Kubernetes makes $ of $$."""
    place.image(**{each["name"]: each["value"] for each in inside["env"]})
    place.train(*(word.replace("$$", "$") for word in command))


TARGETS = {
    "wsl2": wsl2,
    "skypilot": skypilot,
    "container": container,
    "slurm": slurm,
    "kubernetes": kubernetes,
}


@pytest.fixture
def place(
    project: Project, torch_python: str, tools: Path, tmp_path_factory: pytest.TempPathFactory
) -> Place:
    """Give a place without anything; the environments of both jobs and tests are left out."""
    torch = link_torch(torch_python, tmp_path_factory.mktemp("torch"))
    return Place(project, torch, tools)


def exported(place: Place, job: str, target: str, torch_python: str) -> None:
    """Plan a job at its small size, as on a machine with a GPU, and write the files for a target.

    Its data is made here, and goes along.
    """
    folder, project = place.project.folder, place.project
    shutil.copytree(REPOSITORY / "examples" / job, folder, dirs_exist_ok=True)
    if (folder / "make_data.py").exists():
        place.run(f"{torch_python} make_data.py --preset small")
    project.program = (sys.executable, str(HERE / "recorded_here.py"), str(MACHINE))
    command = ("--", "python", "train.py", "--preset", "small", *LONGER.get(job, ()))
    project.environment["PATH"] = f"{Path(torch_python).parent}:{os.environ['PATH']}"
    planned = project.say("plan", "--no-trials", "--yes", *command)
    assert planned.code == 0, planned.err
    written = project.say("plan", "--export", target)
    assert written.code == 0, written.err


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("job", JOBS)
def test_what_an_export_says_leads_to_a_first_step(
    place: Place, job: str, target: str, torch_python: str
) -> None:
    exported(place, job, target, torch_python)

    TARGETS[target](place)

    (site,) = (
        found
        for home in (place.project.home, place.project.folder)
        for found in home.glob("*/lib/python3*/site-packages")
    )
    there = {each.name.lower() for each in distributions(path=[str(site)])}
    assert there >= {*NEEDED[job], "rocsteady"}
    assert "torch" not in there, "the torch that was there has been replaced"


def test_every_target_is_here() -> None:
    assert TARGETS.keys() == EXPORTS.keys()
