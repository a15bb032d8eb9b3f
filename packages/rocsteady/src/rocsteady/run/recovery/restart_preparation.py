"""Between two attempts: what the next one will repeat, what is copied first, how long to wait."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from rocsteady.errors import RocsteadyError
from rocsteady.model import Decision, Next
from rocsteady.run.attempt.attempt_end import AttemptEnd
from rocsteady.run.checkpoints.backup import back_up, wrote_model
from rocsteady.run.checkpoints.checkpoints import StartsAt
from rocsteady.run.context import RunSpec, Services
from rocsteady.run.options import RunOptions
from rocsteady.run.recovery.machine import gpu_trouble
from rocsteady.run.stopwatch import Stopwatch
from rocsteady.run.telling.events import Waiting
from rocsteady.store.location import check_own
from rocsteady.store.redaction import shown_command
from rocsteady.store.values import RunRecord
from rocsteady.system.gpu_users import wait_until_free
from rocsteady.wording import duration, near, plural

LOOK_EVERY = 1.0  # seconds, at whether a wait is over
MAX_FILES_NAMED = 3  # files that are named
ADDRESS = re.compile(r"\b[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\b")  # of a GPU
MAX_UNASKED_BYTES = 1 << 30  # bytes that are copied without being asked


class Restart:
    """Gets one run ready for its next attempt."""

    def __init__(self, spec: RunSpec, options: RunOptions, services: Services) -> None:
        self._run, self._folder, self._timing = spec.run, spec.folder, options.timing
        self._announcer, self._stop_requests = services.announcer, services.stop_requests
        self._since = Stopwatch()
        self._told_of_copies = False

    def take_over(self, earlier: RunRecord) -> None:
        """Refuse to take over a run that cannot resume, if that would overwrite its work."""
        saved = any(bucket.seconds_in.get("checkpoint") for bucket in earlier.progress)
        if not saved and not wrote_model(self._folder, self._run.started):
            return
        raise RocsteadyError(
            "it cannot resume, and a restart would overwrite the checkpoints of this run."
            " Set [resume] in rocsteady.toml, or start over:"
            f" rocsteady run --resume never -- {shown_command(self._run.command)}"
        )

    def prepare(
        self,
        end: AttemptEnd,
        decision: Decision,
        number: int,
        *,
        beginning: StartsAt,
        cleared: Callable[[], bool],  # what is waited for
    ) -> None:
        nothing_made = bool(end.heartbeats) and not end.last_step
        if decision.next is Next.AGAIN_FROM_SCRATCH:
            self._back_up(number)
        elif beginning is StartsAt.UNABLE:
            self._back_up(number, at_most=MAX_UNASKED_BYTES, quietly=nothing_made)
        left = wait_until_free(end.processes, self._timing.kfd_within)
        if left:
            uses, use = "process of the last try still uses", "processes of the last try still use"
            self._announcer.say(f"{plural(len(left), uses, use)} the GPU.")
        if decision.gpu_failed:
            self._check_gpu()
        if decision.wait:
            if not decision.waits:
                self._announcer.show(
                    Waiting(trouble="crashed quickly again", next_try=decision.wait)
                )
            self._sleep(decision.wait, cleared)

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
            gpu_trouble,
            rest=rest,
            at_most=at_most,
            stop=lambda: bool(self._stop_requests.stop),
        )
        if trouble:
            address = ADDRESS.search(trouble)
            raise RocsteadyError(
                f"not restarted: after {duration(at_most.total_seconds())} the kernel still reports"
                f" GPU errors ({trouble}). A reset ends whatever else uses the GPU: if `sudo fuser"
                " -v /dev/kfd /dev/dri/*` prints nothing, sudo amd-smi reset --gpureset --gpu"
                f" {address[0] if address else 'NUMBER'}; else reboot. Then: rocsteady run"
                f" --resume {self._run.name}"
            )

    def _back_up(self, number: int, at_most: int | None = None, *, quietly: bool = False) -> None:
        """Keep what the script wrote: it may write over it, or add the same rows again."""
        written = self._since.earliest(self._run.started)
        check_own(Path(self._run.folder))
        target = Path(self._run.folder) / f"aside-{number}"
        aside = back_up(self._folder, written, target, at_most)
        if not aside.files:
            return
        count = plural(aside.files, "file")
        names = ", ".join(aside.names[:MAX_FILES_NAMED]) + (
            ", ..." if aside.files > MAX_FILES_NAMED else ""
        )
        copied = f"backed up to {near(target)}" if aside.folder else "too large to back up"
        verb = "was" if aside.files == 1 else "were"
        if quietly or self._told_of_copies:
            tell = self._announcer.note
        else:
            tell, self._told_of_copies = self._announcer.say, True
        tell(
            f"{count} written by the run {verb} {copied}: {names}."
            " Lines that the script appends to them may be duplicated."
        )

    def _sleep(self, seconds: float, cleared: Callable[[], bool]) -> None:
        deadline, look = time.monotonic() + seconds, time.monotonic() + LOOK_EVERY
        while self._stop_requests.stop is None and time.monotonic() < deadline:
            time.sleep(0.1)
            if time.monotonic() >= look:
                look = time.monotonic() + LOOK_EVERY
                if cleared():
                    return


# Waits until the kernel is quiet about a GPU.
#
# A machine was seen to go down 40 s after a restart on a GPU that had faulted. Unconfirmed: there
# is no AMD GPU here.

KFD = Path("/dev/kfd")


def wait_until_quiet(
    trouble: Callable[[float], str],
    *,
    rest: timedelta,
    at_most: timedelta,
    stop: Callable[[], bool],
) -> str:
    """Wait until there was no trouble for a while; return what there still is at the deadline.

    ``trouble`` says what the kernel said since a moment of the monotonic clock; "": nothing.
    """
    began = since = time.monotonic()
    while not stop():
        reported, now = trouble(since), time.monotonic()
        if not reported and now - since >= rest.total_seconds():
            return ""
        if reported:
            since = now
            if now - began >= at_most.total_seconds():
                return reported
        time.sleep(min(1.0, rest.total_seconds() / 4))
    return ""
