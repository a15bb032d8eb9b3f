"""The checkpoints of one run: which it may use, and which of them is next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from rocsteady.checkpoint_folder import is_ours
from rocsteady.errors import RocsteadyError
from rocsteady.journal.values import Run
from rocsteady.supervisor.checkpoint_number import STEP, number_of
from rocsteady.supervisor.furthest import SAVED
from rocsteady.supervisor.job import Job
from rocsteady.supervisor.origin import Origin, Stamp, find, keep, taken_over
from rocsteady.supervisor.restart import StartsAt
from rocsteady.supervisor.resume import Checkpoint, whole_checkpoints
from rocsteady.vocabulary import Value


class Steps(Value, frozen=True, kw_only=True):
    """The steps that an attempt does not have to make."""

    least: int = 0
    most: int = 0
    key: str = ""  # by which a checkpoint is known again; "": from the beginning
    exact: bool = False  # the checkpoint says so itself

    @property
    def words(self) -> str:
        """For people; "" if nothing is known."""
        if not self.most:
            return ""
        if self.least != self.most:
            return f"between steps {self.least:,} and {self.most:,}"
        return f"{'' if self.exact else 'about '}step {self.most:,}"


class Checkpoints:
    """Knows what was there before the run, and what did not help."""

    def __init__(self, job: Job, folder: Path, records: Path, origin: Origin | None) -> None:
        self.job = job  # it becomes one that can resume when its script says so
        self.avoid: list[Checkpoint] = []  # that did not lead on
        self.folder, self._records = folder, records
        self._origin = origin or Origin()
        self._judged: dict[Stamp, str] = {}  # between two attempts

    def begin(self) -> None:
        """Write down what was there before the run."""
        keep(self._origin, self._records)

    def take_over(self, run: Run, others: Iterable[Run], *, from_scratch: bool) -> None:
        """Tell those of a run that was left from those that other runs have written since.

        A run without any of its own is not started again over those of another.
        """
        found = find(self.job.resume, self.folder)
        self._origin = taken_over(run, others, self.job.resume, found)
        theirs = sorted(each.path for each in found & (self._origin.foreign - self._origin.before))
        if theirs and self.newest() is None and not from_scratch:
            raise RocsteadyError(
                f"{run.name} has no checkpoint of its own: {theirs[-1]} is of another run. Use"
                " --from-scratch to start it from the beginning"
            )
        keep(self._origin, self._records)

    def told(self, job: Job) -> None:
        """Take up that the script resumes by itself, from what it has found already."""
        self.job = job
        self._origin = Origin(before=find(job.resume, self.folder))
        keep(self._origin, self._records)

    @property
    def beginning(self) -> StartsAt:
        """Where the next attempt begins."""
        if self.job.resume is None:
            return StartsAt.UNABLE
        return StartsAt.CHECKPOINT if self.newest() else StartsAt.NONE_YET

    def started(self) -> None:
        """Forget what was read: the attempt that starts may change it."""
        self._judged.clear()

    def newest(self) -> Checkpoint | None:
        """Return the one to go on from, if there is any."""
        return next(self.whole(), None)

    def step_of(self, checkpoint: Checkpoint, seen: tuple[int, int]) -> Steps:
        """Say how many steps a checkpoint has: by itself, or what was ``seen`` when it was written.

        A number that cannot be what was seen counts something else.
        """
        number, (least, most) = number_of(self.folder / checkpoint.path), seen
        key = f"{number.unit} {number.value}" if number else str(checkpoint.path)
        if number is not None and number.unit == STEP:
            near = least // 2 <= number.value <= most + 1 + (most - least)
            if near or not most or is_ours(self.folder / checkpoint.path):
                return Steps(least=number.value, most=number.value, key=key, exact=True)
        return Steps(least=least, most=most, key=key)

    def counts(self) -> dict[str, int]:
        """Return the number of the newest checkpoint, by its unit."""
        newest = self.newest()
        number = number_of(self.folder / newest.path) if newest else None
        return {f"{SAVED}{number.unit}": number.value} if number else {}

    def whole(self) -> Iterator[Checkpoint]:
        """Yield those that the run may go on from, the newest first."""
        return whole_checkpoints(self.job, self.folder, self._origin, self.avoid, self._judged)
