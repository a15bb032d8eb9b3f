"""How a run is watched and ended. Tests shorten these; users set two of them by options."""

from __future__ import annotations

from datetime import timedelta

from rocsteady.hangs.verdict import Patience
from rocsteady.model import Value
from rocsteady.system.child_end import Stopping

ATTEMPTS = 4  # without remedies
ATTEMPTS_WITH_REMEDIES = 1000  # the ladder has a budget of its own, which progress refills


class Settings(Value, frozen=True, kw_only=True):
    """Durations and limits of one run."""

    tick: timedelta = timedelta(milliseconds=200)
    snapshot_within: timedelta = timedelta(seconds=3)
    evidence_within: timedelta = timedelta(seconds=10)
    patience: Patience = Patience()
    stopping: Stopping = Stopping()
    observe: bool = False  # never act
    max_attempts: int | None = None  # None: as many as the ladder's budget has, or ATTEMPTS
    remedies: bool = True  # change something after a failure; else only the same again
    from_scratch: bool = False  # restart even if that does all work again
    continue_after: timedelta = timedelta(seconds=60)  # a stopped run, once
    continue_unattended_after: timedelta = timedelta(seconds=10)  # the same without a terminal
    precious_after: timedelta = timedelta(minutes=10)  # progress that is not thrown away unasked
    quick_crash: timedelta = timedelta(seconds=10)  # a second one within it backs off
    back_off: timedelta = timedelta(seconds=5)  # doubled each time
    back_off_at_most: timedelta = timedelta(minutes=2)
    gpu_rest: timedelta = timedelta(seconds=60)  # that the kernel is quiet about a GPU that failed
    gpu_rest_at_most: timedelta = timedelta(minutes=5)
    kfd_within: timedelta = timedelta(seconds=15)  # for old processes to leave the GPU

    @property
    def most_attempts(self) -> int:
        """How many attempts there may be."""
        if self.max_attempts is not None:
            return self.max_attempts
        return ATTEMPTS_WITH_REMEDIES if self.remedies else ATTEMPTS
