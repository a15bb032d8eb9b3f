"""The words that more than one room speaks. Each has one meaning; docs/vocabulary.md lists them.

All values of rocsteady are frozen ``msgspec.Struct`` classes: the class that the code passes
around is the class that is written as JSON and the class its schema is made from.
"""

from __future__ import annotations

from enum import Enum

import msgspec

DIAGNOSIS_VERSION = 1  # of the JSON that a Diagnosis is written as
OFFERS_VERSION = 1  # of the JSON that TorchOffers are written as
VARIABLES_VERSION = 1  # of the JSON that a VariableReview is written as


class Value(msgspec.Struct, frozen=True):
    """Base of every value. Each class adds ``frozen=True, kw_only=True`` itself."""


class Severity(Enum):
    """How much a finding matters, worst first."""

    BLOCKS = "blocks"  # training cannot be expected to work until this is mended
    RISKS = "risks"  # training may work, and this is known to slow, hang or spoil it
    NOTES = "notes"  # worth knowing; costs nothing


class Effect(Enum):
    """What a variable does on a machine, worst first."""

    HARMS = "harms"  # it blocks training, or slows, hangs or spoils it
    CANCELS = "cancels"  # it makes another variable that is set ineffective
    CANCELLED = "cancelled"  # another variable makes it ineffective
    UNKNOWN = "unknown"  # nothing that was looked at reads it
    INVALID = "invalid"  # what reads it does not take this value
    NONE = "no effect"  # it is read, and changes nothing here
    PARTLY = "partly"  # part of its value changes nothing here
    DEBUGGING = "debugging"  # it helps to find a fault, and slows training
    DEPENDS = "depends"  # on the GPU, and none was found
    HELPS = "helps"  # it resolves a finding
    ACTS = "acts"  # it does what its name says


class Confidence(Enum):
    """Who stands behind a rule."""

    OFFICIAL = "official"  # the vendor's documentation, or the source code itself
    MAINTAINER = "maintainer"  # someone who maintains the component said so in public
    COMMUNITY = "community"  # users reported it
    INFERENCE = "inference"  # our own conclusion from what the sources say


class Need(Enum):
    """What a fix asks of the person beyond typing it."""

    SUDO = "sudo"
    REBOOT = "reboot"
    RELOGIN = "relogin"


class Source(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a statement comes from, so that it survives a renamed repository."""

    owner: str  # who publishes it: a GitHub organisation, or a company
    name: str  # the repository or the document
    title: str
    date: str  # of the statement, ISO 8601, as exactly as it is known: 2025, 2025-11 or 2025-11-04
    url: str = ""
    number: int | None = None  # of the issue, discussion or pull request


class Fix(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a person should do. What the program does by itself is a remedy."""

    text: str
    commands: tuple[str, ...] = ()
    windows: tuple[str, ...] = ()  # what to type in PowerShell instead, where that differs
    container: tuple[str, ...] = ()  # what to do instead for a container, where that differs
    needs: tuple[Need, ...] = ()
    verify: str = ""  # how to see that it worked


class Finding(Value, frozen=True, kw_only=True):
    """What the doctor says about a machine."""

    rule: str
    severity: Severity
    summary: str
    seen: tuple[str, ...]  # the facts it rests on
    fix: Fix
    confidence: Confidence
    confirmed_on: tuple[str, ...]  # hardware on which it was seen by us; empty is "no"
    sources: tuple[Source, ...]


class Unchecked(Value, frozen=True, kw_only=True):
    """What could not be found out, and what was therefore not judged."""

    what: str
    why: str
    rules: tuple[str, ...] = ()


class ComputeDevice(Enum):
    """What a training run would compute on."""

    GPU = "gpu"
    CPU = "cpu"
    UNKNOWN = "unknown"


class Brief(Value, frozen=True, kw_only=True):
    """A machine in four lines."""

    gpus: tuple[str, ...]  # as a person would say it: "2 x Radeon RX 7900 XT (gfx1100, 20 GiB)"
    other_gpus: tuple[str, ...]  # in the machine, but not for us
    system: str
    python: str  # the environment that trains and how it was found; "" if none was
    torch: str  # "" if there is none
    torch_code: str  # what GPUs it has code for and how that is known; "" if that is not known


class KnowledgeState(Value, frozen=True, kw_only=True):
    """Of when the knowledge is, and what it cannot cover."""

    date: str
    age_days: int
    notes: tuple[str, ...] = ()  # sentences for the reader


class KnowledgeDifference(Value, frozen=True, kw_only=True):
    """What a bundle would change, by the names of entries."""

    version: int = 1
    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]


class Diagnosis(Value, frozen=True, kw_only=True):
    """What the doctor says about a machine; the value behind both the screen and ``--json``."""

    version: int
    rocsteady: str  # the version that said it
    machine: Brief
    findings: tuple[Finding, ...]  # worst first, then as the rules are filed
    unchecked: tuple[Unchecked, ...]
    trains_on: ComputeDevice  # what training can be expected to run on, as things stand
    trains_on_gpus: tuple[str, ...]  # which, by name
    facts_read: int
    rules_checked: int
    knowledge: KnowledgeState | msgspec.UnsetType = msgspec.UNSET  # where the day is known

    def having(self, severity: Severity) -> tuple[Finding, ...]:
        """Return the findings of one severity."""
        return tuple(finding for finding in self.findings if finding.severity is severity)


class VariableReason(Value, frozen=True, kw_only=True):
    """One thing that is known of a variable here."""

    effect: Effect
    text: str
    rule: str = ""  # the doctor's rule that says so; "" for what the list of variables says
    sources: tuple[Source, ...] = ()


class VariableVerdict(Value, frozen=True, kw_only=True):
    """What one variable does on a machine."""

    name: str
    value: str | None  # None: not kept, for it may be a secret, or only running the file would tell
    place: str  # "line 3" of a file; "" for the environment
    part: str = ""  # the service or stage of the file; "" if it has one only
    effect: Effect
    reasons: tuple[VariableReason, ...]  # the worst first


class VariableReview(Value, frozen=True, kw_only=True):
    """The variables of an environment or of a file, judged for one machine."""

    version: int = VARIABLES_VERSION
    file: str  # "" for the environment
    machine: Brief
    variables: tuple[VariableVerdict, ...]  # in the order of the file
    others: int  # variables that neither ROCm nor PyTorch reads
    wrong: int  # that a person should look at


class KnownProblem(Value, frozen=True, kw_only=True):
    """What the doctor would say with a build of torch installed."""

    rule: str
    severity: Severity
    summary: str


class TorchOffer(Value, frozen=True, kw_only=True):
    """One build of torch that has code for a GPU and exists for a system."""

    title: str
    torch: str  # the release to install, or a range
    rocm: str
    official: bool  # AMD or PyTorch test it for this GPU and system
    install: str  # the command
    problems: tuple[KnownProblem, ...]  # the worst first
    sources: tuple[Source, ...]
    note: str = ""
    lacks: tuple[str, ...] = ()  # other architectures of the machine that it has no code for


class TorchOffers(Value, frozen=True, kw_only=True):
    """Which builds of torch exist for one GPU, system and Python."""

    version: int = OFFERS_VERSION
    gfx: str
    system: str  # linux, wsl or windows
    python: str  # "" if it was not asked for and none was found
    offers: tuple[TorchOffer, ...]  # the newest first, those with fewer problems before others
    left_out: dict[str, int]  # why, and how many
    others: tuple[str, ...] = ()  # further architectures of the machine
    note: str = ""  # what is known of the GPU beside the builds

    def usable(self) -> bool:
        """Tell whether one of them has no problem that blocks."""
        return any(
            all(problem.severity is not Severity.BLOCKS for problem in offer.problems)
            for offer in self.offers
        )


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

    kind: str  # a key of knowledge/data/failures.toml; "unknown" is one
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


class Strategy(Value, frozen=True, kw_only=True, omit_defaults=True):
    """One way to run a job. None is "as the script says"."""

    workers: int | None = None  # of every DataLoader; 0: none
    loader_thread: bool = False  # with no workers: one thread that loads ahead
    worker_context: str | None = None  # fork, forkserver, spawn
    persistent_workers: bool | None = None
    prefetch_factor: int | None = None
    attention: str | None = None  # math, efficient, flash
    miopen: bool | None = None  # False: PyTorch's own convolutions
    precision: str | None = None  # of the script's own autocast: bf16, fp16; fp32 is "off"
    autocast: str | None = None  # bf16: around the forward of a script that has none of its own
    flush_denormal: bool = False  # on a CPU: numbers below 1e-38, which it is slow with, are 0
    compile: bool | None = None  # True: what is trained; False: not even what the script compiles
    micro_batch: int | None = None  # samples that rocsteady.Loop trains at a time
    device: str | None = None  # "cpu": no GPU is seen
    gpus: tuple[int, ...] | None = None  # that are seen, by their numbers
    variables: dict[str, str | None] = {}  # to set; None: to unset
    checkpoints_back: int = 0  # how many of the newest checkpoints are passed over


class ProbeOutcome(Enum):
    """What came of trying something."""

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


class Observation(Value, frozen=True, kw_only=True):
    """What came of one probe, here, once."""

    probe: str
    variant: str = ""
    outcome: ProbeOutcome
    tries: int  # that went well
    seconds: float
    why: str = ""  # what went wrong, or why it was not run
    place: str = ""  # where it was stuck, or died
    failure: str = ""  # by name, as a run would call it
    worst: float = 0.0  # the largest error, in bounds
    figures: dict[str, float] = msgspec.field(default_factory=dict)
    said: dict[str, str] = msgspec.field(default_factory=dict)
    settings: dict[str, str | None] = msgspec.field(
        default_factory=dict
    )  # variables that were set or unset for it
    software: str = ""  # GPU, driver, ROCm and torch that it is true of
    evidence: str = ""  # a folder
    at: float = 0.0  # by the wall clock

    @property
    def bad(self) -> bool:
        """Tell whether something is wrong here."""
        return self.outcome not in (ProbeOutcome.OK, ProbeOutcome.NOT_RUN)
