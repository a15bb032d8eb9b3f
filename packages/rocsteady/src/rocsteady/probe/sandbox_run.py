"""Runs over the user's folder that never change it: drills, trials, and tries of a search."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Self

from msgspec.structs import replace

from rocsteady.errors import RequestError, RocsteadyError
from rocsteady.probe.folders import FolderTree, differences, read_to_compare
from rocsteady.probe.scratch import AbsolutePathError, Method, Scratch, make_scratch, remove
from rocsteady.run.attempt.injection import OWNER, claim, read_owner
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
from rocsteady.store.location import find_place
from rocsteady.store.machine_history import Memory
from rocsteady.system.child_end import DETACHED, TerminalUse
from rocsteady.system.real_path import real_path

TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
_NO_ACCESS = re.compile(r"HF_TOKEN|\b40[13]\b|(?i:unauthorized|gated|access token|not logged in)")
ON_STDERR = TerminalUse(stdin=None, stdout=2, stderr=2)  # stdout is for what came of it


def name_for(folder: Path) -> str:
    return f"{folder.name or 'root'}-{fingerprint(str(folder))[:12]}"


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


class Sandbox:
    def __init__(  # noqa: PLR0913 - what differs from one use to the next
        self,
        folder: Path,
        root: Path,  # for all that is written
        what: str,  # runs in it: a trial, a drill, a probe
        say: Callable[[str], None],
        *,
        instead: str = "",  # of it, where a script names its folder by an absolute path
        elsewhere: str = "change to the script's folder first",  # if the root lies in the folder
    ) -> None:
        self.folder, self.root, self.what, self.instead = folder, root, what, instead
        self._say, self._elsewhere = say, elsewhere
        self.count = 0  # of the runs
        self.keeps = False  # what was written
        self.changes: tuple[str, ...] | None = ()  # of the user's folder; None: cannot be told
        self.before: FolderTree | None = None

    def __enter__(self) -> Self:
        """Make a place for them; what an earlier one left is removed."""
        if Path(real_path(self.root)).is_relative_to(real_path(self.folder)):
            raise RequestError(f"{self.root} lies in the folder itself; {self._elsewhere}")
        if (self.root / OWNER).exists() and is_alive(read_owner(self.root)):
            raise RocsteadyError(f"another {self.what} of this folder is running")
        if self.root.exists():
            remove(self.root)
        self.root.mkdir(mode=0o700, parents=True)
        self.journal = Journal(find_place(self.root))
        claim(self.root, self.journal.here.process)
        self.before = read_to_compare(self.folder)
        return self

    def __exit__(self, *_: object) -> None:
        self.changes = self.changed()
        self.journal.close()
        if not self.keeps:
            remove(self.root)

    def changed(self) -> tuple[str, ...] | None:
        """Return the paths of the user's folder that have changed; None: cannot be told."""
        return differences(self.before, read_to_compare(self.folder)) if self.before else None

    def lay_out(self, without: Iterable[str] = ()) -> SandboxRun:
        """Lay out the next run; a copy comes ``without`` some paths of the folder."""
        self.count += 1
        name = self.what if self.count == 1 else f"{self.what}-{self.count}"
        run = SandboxRun(self, name, without)
        if self.count == 1:
            for line in where(run.scratch, self.what):
                self._say(line)
        return run


class SandboxRun:
    def __init__(self, sandbox: Sandbox, name: str, without: Iterable[str]) -> None:
        self._sandbox, self.name = sandbox, name
        self._place = sandbox.root / name
        trackers, self.fired = self._place / "trackers", self._place / "fired"
        for made in (trackers, self.fired):  # faults are noted in the second one
            made.mkdir(parents=True)
        environment = offline(os.environ, trackers)
        before = sandbox.before or read_to_compare(sandbox.folder)
        try:
            self.scratch = make_scratch(
                sandbox.folder, self._place, before, environment=environment, without=without
            )
        except AbsolutePathError as error:
            raise RequestError(f"{error}. Use a relative path{sandbox.instead}") from None
        self._environment = self.scratch.environment(environment)

    def carry_out(  # noqa: PLR0913 - what differs from one use to the next
        self,
        job: Job,
        observer: Observer,
        options: RunOptions,
        *,
        memory: Memory | None = None,  # by which strategies are chosen
        terminal: TerminalUse = DETACHED,
        screen: Screen | None = None,  # that writes what happens; None: nothing is printed
    ) -> tuple[Supervisor, int]:
        """Carry it out; return who did, and its exit code. What is learnt in it is not kept."""
        journal = self._sandbox.journal
        job = replace(job_in(self.scratch, job), deadline=None)  # of the run, not of a rehearsal
        run = journal.begin_run(job.command, job=job, strategy=options.strategy, name=self.name)
        supervisor = Supervisor(
            RunSpec(job=job, run=run, folder=self.scratch.folder, seen_as=(self.scratch.project,)),
            options,
            Services(
                journal=journal,
                announcer=Announcer(
                    journal, run.id, screen=screen, quiet=screen is None, names_run=False
                ),
                memory=memory,
                learns=False,
                terminal=terminal,
                environment=self._environment,
            ),
            observers=(_InSandbox(self.scratch), observer),
        )
        code = supervisor.carry_out()
        forget(Path(run.folder))  # nobody takes it over
        journal.flush()
        return supervisor, code

    def refuse_blame(self, printed: str) -> None:
        """Raise an error if a script failed because of what its sandbox does not let it do."""
        why, what, scratch = "", self._sandbox.what, self.scratch
        written = next((link for link in scratch.read_only if link in printed), None)
        if written and os.strerror(errno.EROFS) in printed:
            why = f"{written} leads out of this folder and can only be read in a {what}"
        elif scratch.method is Method.OVERLAY_NO_RENAME and os.strerror(errno.EXDEV) in printed:
            why = f"existing folders cannot be renamed in a {what} here"
        elif (names := [it for it in TOKENS if it in os.environ]) and _NO_ACCESS.search(printed):
            why = f"{names[0]} is withheld in a {what}, so that nothing is uploaded"
        if why:
            raise RequestError(
                f"the {what} failed, not the script: {why}. Train without one: rocsteady"
                f" run{self._sandbox.instead}"
            )

    def remove(self) -> None:
        remove(self._place)
