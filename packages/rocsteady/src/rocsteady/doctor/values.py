"""The results of the doctor: what the screens and ``--json`` show."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from rocsteady.doctor.knowledge.values import (
    Area,
    Backing,
    Confidence,
    Effect,
    Fix,
    Need,
    Severity,
    Source,
)
from rocsteady.model import Value

DIAGNOSIS_VERSION = 1  # of the JSON that a Diagnosis is written as
OFFERS_VERSION = 1  # of the JSON that TorchOffers are written as
VARIABLES_VERSION = 1  # of the JSON that a VariableReview is written as
INSTALLS_TORCH = "pip install --force-reinstall "
AFTERWARDS = {
    Need.RELOGIN: "log out and in again",
    Need.REBOOT: "reboot",
}  # the later does for both


class Finding(Value, frozen=True, kw_only=True):
    rule: str
    severity: Severity
    area: Area = Area.GPU
    summary: str
    seen: tuple[str, ...]  # the facts it rests on
    fix: Fix
    confidence: Confidence
    confirmed_on: tuple[str, ...]  # hardware on which it was seen by us; empty is "no"
    sources: tuple[Source, ...]
    training_hung: bool = False  # on machines like this one, by the sources


class Unchecked(Value, frozen=True, kw_only=True):
    """What could not be found out, and what was therefore not judged."""

    what: str
    why: str
    rules: tuple[str, ...] = ()


class ComputeDevice(Enum):
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
    gpu_use: tuple[str, ...] = ()  # memory that is free, and who holds the rest
    torch_code: str  # what GPUs it has code for and how that is known; "" if that is not known
    torch_covers: tuple[str, ...] = ()  # of the GPUs here, those that it has code for: gfx1100


class KnowledgeState(Value, frozen=True, kw_only=True):
    """How old the knowledge is, and what it cannot cover."""

    version: str  # of the data package, such as 2026.11.0
    age_days: int  # since the first day of its month
    notes: tuple[str, ...] = ()  # sentences for the reader


class KnowledgeTable(Value, frozen=True, kw_only=True):
    name: str
    entries: int
    newest_source: str = ""  # a day, month or year; "" where no source has a date
    age_days: int | None = None  # of that source
    out_of_date: int = 0  # entries that nobody has checked for longer than their kind allows


class Watcher(Value, frozen=True, kw_only=True):
    """A program that compares the knowledge base with what is upstream: tools/watch_*.py."""

    name: str
    looked: str  # the day; "" is never
    at: str  # the version of what it looked at
    open: tuple[str, ...]  # what is true upstream, and in no entry
    changed: tuple[str, ...]  # what differed from the last look, and nobody has judged


class KnowledgeReport(Value, frozen=True, kw_only=True):
    version: int = 1
    state: KnowledgeState
    tables: tuple[KnowledgeTable, ...]
    out_of_date: tuple[str, ...] = ()  # "rules: some-rule, last checked 2025-11", the oldest first
    ignored: tuple[str, ...]  # "file: entry: problem" of what this rocsteady does not understand
    upgrade: str  # the command
    watchers: tuple[Watcher, ...] = ()


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
    knowledge: KnowledgeState
    more: str = ""  # where the page about its GPU is; "" if that would have nothing to say

    def having(self, severity: Severity) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity is severity)


class VariableReason(Value, frozen=True, kw_only=True):
    effect: Effect
    text: str
    rule: str = ""  # the doctor's rule that says so; "" for what the list of variables says
    sources: tuple[Source, ...] = ()


class VariableVerdict(Value, frozen=True, kw_only=True):
    name: str
    value: str | None  # None: not kept, for it may be a secret, or only running the file would tell
    place: str  # "line 3" of a file; "" for the environment
    effect: Effect
    reasons: tuple[VariableReason, ...]  # the worst first


class VariableReview(Value, frozen=True, kw_only=True):
    """The variables of an environment or of a file, judged for one machine."""

    version: int = VARIABLES_VERSION
    file: str  # "" for the environment
    machine: Brief
    variables: tuple[VariableVerdict, ...]  # in the order of the file
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
    backing: Backing
    install: str  # the command
    problems: tuple[KnownProblem, ...]  # the worst first
    sources: tuple[Source, ...]
    note: str = ""
    lacks: tuple[str, ...] = ()  # other architectures of the machine that it has no code for


class TorchOffers(Value, frozen=True, kw_only=True):
    version: int = OFFERS_VERSION
    gfx: str
    system: str  # linux, wsl or windows
    python: str  # "" if it was not asked for and none was found
    offers: tuple[TorchOffer, ...]  # the newest first, those with fewer problems before others
    left_out: dict[str, int]  # why, and how many
    others: tuple[str, ...] = ()  # further architectures of the machine
    note: str = ""  # what is known of the GPU beside the builds

    def usable(self) -> bool:
        return any(
            all(problem.severity is not Severity.BLOCKS for problem in offer.problems)
            for offer in self.offers
        )


def steps_in_order(findings: Sequence[Finding]) -> Sequence[str]:
    """Return each command of the fixes once, those of what blocks training first.

    One torch is installed: the one for the worst finding.
    """
    fixes = [each.fix for each in findings if each.fix.commands]
    commands = dict.fromkeys(command for fix in fixes for command in fix.commands)
    installing = [each for each in commands if each.startswith(INSTALLS_TORCH)]
    needed = {need for fix in fixes for need in fix.needs}
    afterwards = [step for need, step in AFTERWARDS.items() if need in needed][-1:]
    return (*(each for each in commands if each not in installing[1:]), *afterwards)
