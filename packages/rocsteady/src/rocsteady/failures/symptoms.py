"""Everything that is known of an attempt that failed."""

from __future__ import annotations

from rocsteady.hangs.heartbeat_pages import RaisedException
from rocsteady.hangs.values import Heartbeat, Snapshot
from rocsteady.model import Value

SHELL = 128  # what a shell adds to the signal that ended its child
HIGHEST_SIGNAL = 64


class Symptoms(Value, frozen=True, kw_only=True):
    log: str = ""  # the end of the stored log, both streams, with no times in front
    kernel: tuple[str, ...] = ()  # oldest first
    exit_code: int | None = None
    signal: int | None = None
    rank: int | None = None  # that ended so, as far as was seen
    hung: bool = False
    snapshots: tuple[Snapshot, ...] = ()  # while it hung, oldest first
    heartbeats: tuple[Heartbeat, ...] = ()
    culprit: int | None = None  # the process that the verdict blames for a hang
    phase: str = ""
    step: int | None = None
    total: int | None = None  # steps of the whole job
    start: str = ""  # the checkpoint from which the script itself went on
    oom_kills: int | None = None  # that its cgroup counted
    loader_workers: bool = False  # the script has loaded data in other processes
    shared_full: bool = False  # /dev/shm
    raised: tuple[RaisedException, ...] = ()  # in time order
    machine_went_down: bool = False
    gpu: bool = True  # one may have been used
    ranks: bool = True  # there may have been several
    disk_free: int | None = None  # bytes
    file_limit: int = 0  # bytes that a file may have, if the one that could not be saved has them
    gpu_taken: int = 0  # bytes of device memory that other processes hold
    exits: bool = False  # the script ended itself: its own code is done, without an exception

    @property
    def failed(self) -> bool:
        """Whether something else than texts says that the attempt failed."""
        return bool(self.hung or self.signal or self.exit_code or self.raised)

    @property
    def ended_by(self) -> int | None:
        """The signal that ended it: as reported, as Python gives it, or as a shell does."""
        if self.signal:
            return self.signal
        code = self.exit_code or 0
        if -HIGHEST_SIGNAL <= code < 0:
            return -code
        return code - SHELL if SHELL < code <= SHELL + HIGHEST_SIGNAL else None
