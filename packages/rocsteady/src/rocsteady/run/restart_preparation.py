"""Between two attempts: what the next one will repeat, what is copied first, how long to wait."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import Enum
from pathlib import Path

from rocsteady.errors import RocsteadyError
from rocsteady.model import Next, Outcome
from rocsteady.run.attempt_end import AttemptEnd
from rocsteady.run.backup import copy_aside, wrote_model
from rocsteady.run.context import RunSpec, Services
from rocsteady.run.gpu_release import KFD, wait_until_free, wait_until_quiet
from rocsteady.run.options import RunOptions
from rocsteady.run.recovery import Decision
from rocsteady.run.stopwatch import Stopwatch
from rocsteady.store.redaction.redactor import shown_command
from rocsteady.store.values import RunStory
from rocsteady.wording import duration, plural

UNCHANGED = ("", "retry")  # the same again
NAMED = 3  # files that are named
MOST_UNASKED = 1 << 30  # bytes that are copied without being asked


class StartsAt(Enum):
    """Where the next attempt begins."""

    CHECKPOINT = "at a checkpoint"
    NONE_YET = "at the beginning, since there is no checkpoint yet"
    BY_ITSELF = "where the script resumes on its own"
    UNABLE = "at the beginning, since it cannot resume"


class Restart:
    """Gets one run ready for its next attempt."""

    def __init__(
        self,
        spec: RunSpec,
        options: RunOptions,
        services: Services,
        gpu_trouble: Callable[[float], str],  # what the kernel said since a moment
    ) -> None:
        self._run, self._folder, self._timing = spec.run, spec.folder, options.timing
        self._announcer, self._stop_requests = services.announcer, services.stop_requests
        self._gpu_trouble = gpu_trouble
        self._since = Stopwatch()
        self._quick_crashes = 0

    def take_over(self, earlier: RunStory) -> None:
        """Refuse to take over a run that cannot resume, if that would overwrite its work."""
        saved = any(bucket.seconds_in.get("checkpoint") for bucket in earlier.progress)
        if not saved and not wrote_model(self._folder, self._run.started):
            return
        raise RocsteadyError(
            "the run has written checkpoints, but rocsteady does not know how the script resumes,"
            " and a restart would overwrite them. Set [resume] in rocsteady.toml, or start over:"
            f" rocsteady run --resume never -- {shown_command(self._run.command)}"
        )

    def prepare(
        self, end: AttemptEnd, decision: Decision, number: int, *, beginning: StartsAt
    ) -> None:
        """Get ready for the next attempt."""
        same = decision.remedy in UNCHANGED or bool(decision.fallback)
        named = "" if same else f" Remedy: {decision.remedy}."
        self._announcer.say(f"attempt {number + 1}: {decision.why.rstrip('.')}.{named}")
        if beginning is StartsAt.BY_ITSELF:
            self._announcer.say(
                f"attempt {number + 1} runs the same command, which resumes on its own; it repeats"
                " the steps since the script's last checkpoint."
            )
        elif beginning is not StartsAt.CHECKPOINT:
            steps = f"{end.last_step:,} steps" if end.last_step else "all the work"
            self._announcer.say(
                f"attempt {number + 1} starts from the beginning and repeats {steps}."
            )
        if decision.next is Next.AGAIN_FROM_SCRATCH:
            self._copy_aside(number)
        elif beginning is StartsAt.UNABLE:
            self._copy_aside(number, at_most=MOST_UNASKED)
        left = wait_until_free(end.processes, self._timing.kfd_within)
        if left:
            uses = "process of the last attempt still uses"
            use = "processes of the last attempt still use"
            self._announcer.say(f"{plural(len(left), uses, use)} the GPU.")
        if decision.gpu_failed:
            self._check_gpu()
        quick = end.seconds < self._timing.quick_crash.total_seconds()
        crashed = quick and end.outcome is Outcome.BY_ITSELF
        self._quick_crashes = self._quick_crashes + 1 if crashed else 0
        if self._quick_crashes > 1:
            doubled = self._timing.back_off * 2 ** min(self._quick_crashes - 2, 10)
            wait = min(doubled, self._timing.back_off_at_most).total_seconds()
            self._announcer.say(f"the script crashed quickly again; waiting {duration(wait)}.")
            self._sleep(wait)

    def _check_gpu(self) -> None:
        """Let a GPU that failed come to rest; one that does not is left alone."""
        if not KFD.exists():
            return
        rest, at_most = self._timing.gpu_rest, self._timing.gpu_rest_at_most
        self._announcer.say(
            "the GPU failed; waiting until the kernel has reported no GPU errors for"
            f" {duration(rest.total_seconds())}."
        )
        trouble = wait_until_quiet(
            self._gpu_trouble,
            rest=rest,
            at_most=at_most,
            stop=lambda: bool(self._stop_requests.stop),
        )
        if trouble:
            raise RocsteadyError(
                f"not restarted: after {duration(at_most.total_seconds())} the kernel still reports"
                f" GPU errors ({trouble}). Reset the GPU or reboot, then: rocsteady run"
                f" --resume {self._run.name}"
            )

    def _copy_aside(self, number: int, at_most: int | None = None) -> None:
        """Keep what the script wrote: it may write over it, or add the same rows again."""
        written = self._since.earliest(self._run.started)
        target = Path(self._run.folder) / f"aside-{number}"
        aside = copy_aside(self._folder, written, target, at_most)
        if not aside.files:
            return
        count = plural(aside.files, "file")
        names = ", ".join(aside.names[:NAMED]) + (", ..." if aside.files > NAMED else "")
        copied = f"backed up to {near(target)}" if aside.folder else "too large to back up"
        verb = "was" if aside.files == 1 else "were"
        self._announcer.say(f"{count} written by the run {verb} {copied}: {names}.")
        self._announcer.say("rows that the script appends to these files will appear twice.")

    def _sleep(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self._stop_requests.stop is None and time.monotonic() < deadline:
            time.sleep(0.1)


def near(path: Path) -> str:
    """Write a path as short as it can be typed from here."""
    try:
        return str(path.relative_to(Path.cwd()))
    except (OSError, ValueError):
        return str(path)
