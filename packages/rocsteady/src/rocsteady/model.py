"""The values that several rooms share: how a job is run, how it ended, and why.

All values of rocsteady are frozen ``msgspec.Struct`` classes: the class that the code passes
around is the class that is written as JSON and the class its schema is made from.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import Enum
from typing import Final

import msgspec


class Value(msgspec.Struct, frozen=True):
    """Base of every value. Each class adds ``frozen=True, kw_only=True`` itself."""


class OpenEnum(Enum):
    """An enum that a newer version may extend: what is not known here reads as ``OTHER``."""

    @classmethod
    def _missing_(cls, _value: object) -> OpenEnum:
        return cls["OTHER"]


class RunOutcome(OpenEnum):
    NONE = ""  # it has not
    DONE = "done"
    NOT_DONE = "ended, not done"
    STOPPED = "stopped by the user"
    NOT_STARTED = "not started"
    NOT_RECORDED = "the journal could not be written"
    SUPERVISOR_FAILED = "the supervisor failed"
    OTHER = "unknown"


class Outcome(OpenEnum):
    """How an attempt ended."""

    NONE = ""  # it has not, or nobody was left to see it
    BY_ITSELF = "by itself"
    HUNG = "hung"
    AT_EXIT = "finished but did not exit"
    STOPPED = "stopped by the user"
    UNKILLABLE = "cannot be killed"
    REPLACED = "restarted together with other hosts"
    STARTED_OVER = "started over instead of resuming"
    LEFT = "left for the next option of the plan"
    NOT_STARTED = "not started"
    OTHER = "unknown"


def has_failed(outcome: Outcome, code: int | None) -> bool:
    """Return whether an attempt neither ended well nor was stopped."""
    ours = (
        Outcome.STOPPED,
        Outcome.AT_EXIT,
        Outcome.REPLACED,
        Outcome.STARTED_OVER,
        Outcome.LEFT,
    )
    return outcome not in ours and (outcome is not Outcome.BY_ITSELF or code != 0)


class RunState(OpenEnum):
    """The kinds of a verdict. Hung is not slow."""

    STARTING = "starting"  # no step yet
    HEALTHY = "healthy"
    SLOW = "slow"  # longer than ever, and something moves, or it cannot be told that nothing does
    STOPPED = "stopped"  # by a signal or a debugger; not ours to end
    HUNG = "hung"
    FINISHING = "finishing"  # the script's own code is done, and what it does then is work
    OTHER = "unknown"


class RunEvent(OpenEnum):
    """What a line of a run is about: the word that it begins with."""

    NOTE = ""  # none of these
    STARTED = "started"
    FAULTS = "faults"  # are injected
    STARTING = "starting"  # for long
    SLOW = "slow"
    MOVING = "moving"  # again
    HUNG = "hung"
    CRASHED = "crashed"
    EXITED = "exited"  # by itself, or because somebody ended it
    WAITING = "waiting"  # for what can clear up
    RESUMED = "resumed"
    RETRYING = "retrying"  # without a checkpoint of ours
    STOPPED = "stopped"
    GAVE_UP = "gave up"
    DONE = "done"
    OTHER = "unknown"


class Next(Enum):
    """What comes after an attempt."""

    END = "end"
    AGAIN = "again"
    AGAIN_FROM_SCRATCH = "again, from the beginning"


class IntentKind(OpenEnum):
    """What is written down before it is done."""

    START = "start"  # an attempt
    KILL = "kill"  # an attempt
    PAUSE = "pause"  # until it has an outcome, the user has paused the run
    PROBE = "probe"
    OTHER = "unknown"


class FailureKind:
    """The kinds of failure that code refers to; the knowledge has these and more."""

    ABORT: Final = "abort"
    BLAS_ERROR: Final = "blas-error"
    BLAS_HANDLE_FAILED: Final = "blas-handle-failed"
    BUS_ERROR: Final = "bus-error"
    CHECKPOINT_CORRUPT: Final = "checkpoint-corrupt"
    COLLECTIVE_ERROR: Final = "collective-error"
    COLLECTIVE_TIMEOUT: Final = "collective-timeout"
    DISK_FULL: Final = "disk-full"
    FILE_SIZE_LIMIT: Final = "file-size-limit"
    GPU_HANG: Final = "gpu-hang"
    GPU_HARDWARE_ERROR: Final = "gpu-hardware-error"
    GPU_LAUNCH_FAILURE: Final = "gpu-launch-failure"
    GPU_TAKEN: Final = "gpu-taken"
    HANG: Final = "hang"
    HANG_AT_IMPORT: Final = "hang-at-import"
    HANG_IN_BACKWARD: Final = "hang-in-backward"
    HANG_IN_CHECKPOINT: Final = "hang-in-checkpoint"
    HANG_IN_COLLECTIVE: Final = "hang-in-collective"
    HANG_IN_COMPILE: Final = "hang-in-compile"
    HANG_IN_COPY: Final = "hang-in-copy"
    HANG_IN_DOWNLOAD: Final = "hang-in-download"
    HANG_IN_LOADER: Final = "hang-in-loader"
    HANG_IN_SCRIPT: Final = "hang-in-script"
    HANG_IN_SYNC: Final = "hang-in-sync"
    HANG_LOST_INTERRUPT: Final = "hang-lost-interrupt"
    HIP_INVALID_VALUE: Final = "hip-invalid-value"
    HSA_OUT_OF_RESOURCES: Final = "hsa-out-of-resources"
    INTERRUPTED: Final = "interrupted"
    MACHINE_WENT_DOWN: Final = "machine-went-down"
    MEMORY_ACCESS_FAULT: Final = "memory-access-fault"
    MIOPEN_FAILURE: Final = "miopen-failure"
    NAN_LOSS: Final = "nan-loss"
    NO_CODE_FOR_GPU: Final = "no-code-for-gpu"
    NO_GPU_VISIBLE: Final = "no-gpu-visible"
    OOM_DEVICE: Final = "oom-device"
    OOM_FRAGMENTATION: Final = "oom-fragmentation"
    OOM_HOST: Final = "oom-host"
    OOM_WHILE_FREE: Final = "oom-while-free"
    PEER_DIED: Final = "peer-died"
    RENDEZVOUS_FAILED: Final = "rendezvous-failed"
    SCRIPT_ERROR: Final = "script-error"
    SCRIPT_EXIT: Final = "script-exit"
    SEGFAULT: Final = "segfault"
    SHM_TOO_SMALL: Final = "shm-too-small"
    STORAGE_UNAVAILABLE: Final = "storage-unavailable"
    KILLED: Final = "killed"
    STOPPED_BY_ROCSTEADY: Final = "stopped-by-rocsteady"
    UNKNOWN: Final = "unknown"
    WRONG_DEVICE_MASK: Final = "wrong-device-mask"


class Role(Enum):
    """What a failure is to the others that were seen with it."""

    ROOT = "root"  # it came first, and the others follow from it
    CASCADE = "cascade"  # it happened because something else did
    CONFIRMATION = "confirmation"  # it says the same in another place


class Certainty(Enum):
    """How far a name can be trusted."""

    CERTAIN = "certain"  # only this failure looks so
    LIKELY = "likely"  # others could look so; this is the commonest
    UNKNOWN = "unknown"


class Fingerprint(Value, frozen=True, kw_only=True):
    """What makes two failures the same one."""

    kind: str
    place: str = ""  # file and function, or the library's own
    step: int | None = None
    start: str = ""  # the checkpoint from which those steps are counted; "": from the beginning


class Failure(Value, frozen=True, kw_only=True):
    """Why an attempt ended, by name."""

    kind: str  # a key of rocsteady_knowledge/data/failures.toml; "unknown" is one
    title: str  # one line
    words: str  # what it means, and what it does not
    certainty: Certainty
    fingerprint: Fingerprint
    seen: tuple[str, ...]  # the lines and frames that it rests on
    line: str = ""  # of Python, in which the process crashed: "train.py:12 in step"
    signature: str = ""  # by which it was recognised
    rank: int | None = None  # of which it came, where there are several
    also: tuple[tuple[str, Role], ...] = ()  # what else was seen: cascades and confirmations
    traceback: str = ""  # of the script's own error
    sources: tuple[str, ...] = ()  # such as "ROCm/ROCm#6530"
    missing: str = ""  # a path that the script used before and did not find any more
    by_end: bool = False  # only how the process ended tells of it


CPU = "cpu"  # as a device of a Strategy: no GPU is seen


class Strategy(Value, frozen=True, kw_only=True, omit_defaults=True):
    """One way to run a job. None is "as the script says"."""

    workers: int | None = None  # of every DataLoader; 0: none
    worker_context: str | None = None  # fork, forkserver, spawn
    persistent_workers: bool | None = None
    prefetch_factor: int | None = None
    attention: str | None = None  # math, efficient, flash
    miopen: bool | None = None  # False: PyTorch's own convolutions
    precision: str | None = None  # of the script's own autocast: bf16, fp16; fp32 is "off"
    compile: bool | None = None  # False: not even what the script compiles
    micro_batch: int | None = None  # samples that rocsteady_train.Loop trains at a time
    device: str | None = None
    gpus: tuple[int, ...] | None = None  # that are seen, by their numbers
    variables: dict[str, str | None] = {}  # to set; None: to unset
    checkpoints_back: int = 0  # how many of the newest checkpoints are passed over


class LoaderFacts(Value, frozen=True, kw_only=True):
    """What processes told of the DataLoaders that their script has used."""

    loaders: int  # in one process
    workers: int  # the most that the script asked for
    context: str  # by which those would be started: fork, spawn, forkserver; "" without workers
    pickles: bool | None  # dataset, collate_fn and worker_init_fn; None: not tried
    main_guarded: bool | None  # importing the main module again starts nothing
    persistent: bool = False  # one keeps its workers from epoch to epoch


class BatchSplit(Value, frozen=True, kw_only=True):
    """How rocsteady_train.Loop trains a batch, in the process that has the largest."""

    batch: int  # samples
    micro_batch: int  # samples that are trained at a time; 0: the batch cannot be split


class FailedAttempt(Value, frozen=True, kw_only=True):
    """An attempt that failed: with what, and how far it came."""

    strategy: Strategy
    failure: Fingerprint
    remedy: str = ""  # that led to it; "" for the first
    clears: bool = False  # what ended it can clear up by itself
    progressed: bool = False  # it came further than every attempt before it
    steps: int = 0  # how far the job was when it failed, counted from the job's beginning


class Decision(Value, frozen=True, kw_only=True, omit_defaults=True):
    """All that is done next, and why. It is recorded before it is carried out."""

    next: Next
    why: str  # for people
    code: int = 0  # with which rocsteady ends, if it ends
    strategy: Strategy = Strategy()  # of the next attempt
    remedy: str = ""  # that leads to it; "": the same again, or another option
    reverted: str = ""  # a remedy that did not help, and is undone
    fallback: int = 0  # the option of the plan that the run falls back to; 0: it does not
    avoid: tuple[tuple[str, float], ...] = ()  # checkpoints not to go on from, and their times
    waits: bool = False  # for what can clear up by itself
    wait: float = 0.0  # seconds, at most, before the next attempt
    announced: bool = False  # the same wait was announced before
    gpu_failed: bool = False  # so it is checked before it is used again
    kind: str = ""  # of the failure that ended the run; "": not known, or none
    exhausted: bool = False  # it ends because nothing is left to try
    needs_person: bool = False  # somebody must do what is known of that kind
    needs_resume: bool = False  # it ends only because no way to resume is known
    own_error: str = ""  # what the script itself ended with, which is not retried
    skipped: tuple[tuple[str, str], ...] = ()  # remedies that were not tried, and why
    asked: bool = False  # for by the user: it answers no failure
    host: int | None = None  # the host that decided for all; None: this one
    tried: tuple[FailedAttempt, ...] | None = None  # by the hosts, if another one decided
    crashed: Strategy | None = None  # what took the machine down, and is not started again

    @property
    def ends(self) -> bool:
        return self.next is Next.END

    @property
    def changes_nothing(self) -> bool:
        """Whether the next attempt has the same settings, from the same checkpoint."""
        again = self.next is Next.AGAIN and not self.fallback
        return again and self.remedy in ("", "retry")

    @property
    def what(self) -> str:
        option = f"option-{self.fallback}" if self.fallback else ""
        return option or self.remedy or self.next.value


class ProbeOutcome(Enum):
    OK = "ok"
    WRONG = "wrong numbers"
    EXCEPTION = "exception"
    HANG = "hang"
    CRASH = "crash"
    NO_MEMORY = "out of memory"
    UNKILLABLE = "cannot be killed"
    WENT_DOWN = "machine went down"
    NOT_RUN = "not run"


TRIAL = "trial"  # the probe of an observation that is of one script, in a plan
CAUSE = "cause"  # the same for the search for the cause of a failure


class Observation(Value, frozen=True, kw_only=True):
    """What came of one probe, here, once."""

    probe: str
    variant: str = ""
    outcome: ProbeOutcome
    tries: int = 0  # that went well
    seconds: float = 0.0
    why: str = ""  # what went wrong, or why it was not run
    place: str = ""  # where it was stuck, or died
    failure: str = ""  # by name, as a run would call it
    worst: float = 0.0  # the largest error, in bounds
    figures: dict[str, float] = msgspec.field(default_factory=dict)
    details: dict[str, str] = msgspec.field(default_factory=dict)
    software: str = ""  # GPU, driver, ROCm and torch that it is true of
    evidence: str = ""  # a folder
    at: float = 0.0  # by the wall clock

    @property
    def title(self) -> str:
        return f"{self.probe} {self.variant}".rstrip()

    @property
    def bad(self) -> bool:
        return self.outcome not in (ProbeOutcome.OK, ProbeOutcome.NOT_RUN)


class Risk(Enum):
    """How likely it is that an option does not lead to the end."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class WaitsFor(Enum):
    """What the training thread of a rank does, as far as it matters to the other ranks."""

    RANKS = "the other ranks"  # in a collective, or at a store
    GPU = "the GPU"  # which may be a collective, too
    MAYBE_RANKS = "PyTorch"  # in code of PyTorch that may contain a collective, such as backward
    NOTHING = "nothing"  # it runs
    LOCK = "a lock"
    LOADER = "its data loader"
    PROCESS = "another process"
    WORLD = "a file or the network"
    TIME = "time"
    STOPPED = "to be continued"
    ENDED = "ended"  # its script is done
    UNKNOWN = "unknown"  # its stack could not be read


class Sign(Enum):
    """By what ranks stand out."""

    SILENT = "silent"  # nothing was heard of them
    WAIT = "wait"  # they do not wait for the others, and others wait
    STEP = "step"  # they are behind
    PLACE = "place"  # they wait at another line
    PHASE = "phase"
    NONE = "none"  # no rank stands out


class RankRecord(Value, frozen=True, kw_only=True):
    rank: int
    host: str = ""  # "": this machine
    gpu: str = ""  # "": not known, or none
    pid: int | None = None
    step: int = 0
    phase: str = ""
    place: str = ""  # "train.py:88 main"
    waits_for: WaitsFor = WaitsFor.UNKNOWN
    heard: bool = True  # False: neither the rank nor its host has answered


class Blame(Value, frozen=True, kw_only=True):
    """The ranks that stand out, and why; none if that cannot be told."""

    sign: Sign
    why: str  # a sentence without its full stop
    ranks: tuple[RankRecord, ...] = ()  # the first of those that stand out
    number: int = 0  # of those that stand out
    compared: int = 0  # ranks in all
    places: tuple[str, ...] = ()  # that the sentence names
    unclear: bool = False  # these wait for each other in different places, or for other hosts

    def cause(self, own: str) -> str:
        """Return the line that holds up the others; "" if nobody can tell.

        ``own`` is where this host is stuck: in a worker of the rank that is blamed, or in one that
        only waits.
        """
        if self.sign is Sign.NONE:
            return "" if self.unclear else own
        elsewhere = any(each.host for each in self.ranks)
        if self.sign is Sign.WAIT and not elsewhere:
            return own
        return self.places[0] if self.places else own * (not elsewhere)


class Deadline(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """By when. One of the two."""

    at: datetime | None = None
    within: timedelta | None = None  # of the start of the run


class Forecast(Value, frozen=True, kw_only=True):
    at: float  # as likely before as after
    early: float  # the end lies between, 90 %
    late: float
    rate: float  # steps a second
    left: int  # steps
    failures: float  # that are expected on the way
