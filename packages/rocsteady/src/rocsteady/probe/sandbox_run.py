"""Runs over the user's folder that never change it: drills and trials."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from rocsteady.errors import RequestError, RocsteadyError
from rocsteady.probe.folders import FolderTree
from rocsteady.probe.scratch import AbsolutePathError, Method, Scratch, make_scratch, remove
from rocsteady.run.attempt.injection import OWNER, read_owner
from rocsteady.run.checkpoints.resume import Launch
from rocsteady.run.context import RunSpec, Services
from rocsteady.run.job.values import Job
from rocsteady.run.loop import Supervisor
from rocsteady.run.observer import ObservedRun, Observer
from rocsteady.run.options import RunOptions
from rocsteady.run.telling.announcer import Announcer, Screen
from rocsteady.store.account_records import forget
from rocsteady.store.identity import fingerprint, is_alive
from rocsteady.store.journal import Journal
from rocsteady.store.machine_history import Memory
from rocsteady.system.child_end import TerminalUse
from rocsteady.system.real_path import real_path

TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
_NO_ACCESS = re.compile(r"HF_TOKEN|\b40[13]\b|(?i:unauthorized|gated|access token|not logged in)")
ON_STDERR = TerminalUse(stdin=None, stdout=2, stderr=2)  # stdout is for what came of it


def name_for(folder: Path) -> str:
    return f"{folder.name or 'root'}-{fingerprint(str(folder))[:12]}"


def make_root(root: Path, folder: Path, *, inside: str, busy: str) -> Path:
    """Make the folder for all that is written; what an earlier one left is removed.

    ``inside`` is what to do if it lies in the user's own folder, ``busy`` what is going on if it is
    in use.
    """
    if Path(real_path(root)).is_relative_to(real_path(folder)):
        raise RequestError(f"{root} lies in {inside}")
    if (root / OWNER).exists() and is_alive(read_owner(root)):
        raise RocsteadyError(busy)
    if root.exists():
        remove(root)
    root.mkdir(mode=0o700, parents=True)
    return root


def lay_out_scratch(
    folder: Path, root: Path, before: FolderTree, without: Iterable[str] = (), *, instead: str = ""
) -> tuple[Scratch, dict[str, str], Path]:
    """Return where the script runs, its environment, and where fired faults are noted.

    ``instead`` is what to do if the script contains a path that a copy would not protect.
    """
    trackers, fired_folder = root / "trackers", root / "fired"
    for made in (trackers, fired_folder):
        made.mkdir()
    environment = offline(os.environ, trackers)
    try:
        scratch = make_scratch(folder, root, before, environment=environment, without=without)
    except AbsolutePathError as error:
        raise RequestError(f"{error}. Use a relative path{instead}") from None
    return scratch, scratch.environment(environment), fired_folder


def offline(environment: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return the environment with trackers that write below ``folder`` and send nothing.

    What the variables mean was read in the documentation of each, and tried with wandb 0.31,
    mlflow-skinny 3.17, comet_ml 3.58 and clearml 2.1. Neptune and SwanLab were not tried. Without a
    token nothing can be uploaded to the Hugging Face Hub, and public models still load.
    """
    no_tokens = {name: value for name, value in environment.items() if name not in TOKENS}
    return {
        **no_tokens,
        "WANDB_MODE": "offline",
        "WANDB_DIR": str(folder),
        "MLFLOW_TRACKING_URI": (folder / "mlruns").as_uri(),
        "MLFLOW_ALLOW_FILE_STORE": "true",
        "COMET_START_ONLINE": "0",
        "COMET_OFFLINE_DIRECTORY": str(folder),
        "CLEARML_OFFLINE_MODE": "1",
        "NEPTUNE_MODE": "offline",
        "SWANLAB_MODE": "offline",
        "HF_TOKEN_PATH": str(folder / "no-token"),
    }


def refuse_blame(scratch: Scratch, printed: str, what: str, instead: str = "") -> None:
    """Raise an error if a script failed because of what its sandbox does not let it do."""
    why = ""
    written = next((link for link in scratch.read_only if link in printed), None)
    if written and os.strerror(errno.EROFS) in printed:
        why = f"{written} leads out of this folder and can only be read in a {what}"
    elif scratch.method is Method.OVERLAY_NO_RENAME and os.strerror(errno.EXDEV) in printed:
        why = f"existing folders cannot be renamed in a {what} here"
    elif (names := [name for name in TOKENS if name in os.environ]) and _NO_ACCESS.search(printed):
        why = f"{names[0]} is withheld in a {what}, so that nothing is uploaded"
    if why:
        raise RequestError(
            f"the {what} failed, not the script: {why}. Train without one: rocsteady run{instead}"
        )


def where(scratch: Scratch, what: str) -> Iterator[str]:
    if scratch.method is Method.COPY:
        where = f"the {what} runs in a copy of this folder (cannot mount here): {scratch.folder}"
    elif scratch.method is Method.BIND:
        where = f"the {what} runs in a copy of this folder, mounted in its place: {scratch.folder}"
    else:
        where = f"the {what} runs in an overlay of this folder; its output goes to {scratch.folder}"
    yield f"rocsteady: {where}."
    if scratch.method is Method.OVERLAY_NO_RENAME:
        yield "rocsteady: in this overlay, existing folders cannot be renamed (EXDEV)."
    if scratch.is_copy:
        yield "rocsteady: paths that the script builds itself may still lead into this folder."
    if scratch.shared:
        named = ", ".join(scratch.shared)
        yield f"rocsteady: not copied but shared with the script: {named} (compared afterwards)."


def job_in(scratch: Scratch, job: Job) -> Job:
    done, resume = job.done_when, job.resume
    files = tuple(replace(each, path=scratch.inside(each.path)) for each in done.files)
    if resume is not None:
        resume = replace(resume, checkpoints=tuple(map(scratch.inside, resume.checkpoints)))
    return replace(job, done_when=replace(done, files=files), resume=resume)


class _InSandbox(Observer):
    def __init__(self, scratch: Scratch) -> None:
        self._scratch = scratch

    def launching(self, run: ObservedRun, launch: Launch) -> Launch:
        del run
        return replace(launch, command=self._scratch.command(launch.command))


@dataclass(frozen=True, kw_only=True)
class SandboxRun:
    """A run over the user's folder that never changes it: a drill or a trial."""

    name: str
    scratch: Scratch
    environment: Mapping[str, str]
    terminal: TerminalUse
    options: RunOptions
    journal: Journal
    memory: Memory | None = None  # by which strategies are chosen
    screen: Screen | None = None  # that writes what happens; None: nothing is printed

    def carry_out(self, job: Job, observer: Observer) -> tuple[Supervisor, int]:
        """Carry it out; return who did, and its exit code. What is learnt in it is not kept."""
        journal = self.journal
        job = replace(job_in(self.scratch, job), deadline=None)  # of the run, not of a rehearsal
        run = journal.begin_run(
            job.command, job=job, strategy=self.options.strategy, name=self.name
        )
        supervisor = Supervisor(
            RunSpec(job=job, run=run, folder=self.scratch.folder, seen_as=(self.scratch.project,)),
            self.options,
            Services(
                journal=journal,
                announcer=Announcer(
                    journal, run.id, screen=self.screen, quiet=self.screen is None, names_run=False
                ),
                memory=self.memory,
                learns=False,
                terminal=self.terminal,
                environment=self.environment,
            ),
            observers=(_InSandbox(self.scratch), observer),
        )
        code = supervisor.carry_out()
        forget(Path(run.folder))  # nobody takes it over
        journal.flush()
        return supervisor, code
