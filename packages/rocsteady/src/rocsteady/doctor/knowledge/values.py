"""What entries of the knowledge have in common: severity, sources, fixes."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import msgspec
from msgspec import Meta

from rocsteady.model import Value

# What every entry is held to when it is read.
Slug = Annotated[str, Meta(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
Text = Annotated[str, Meta(pattern=r"\S")]  # not empty
Sources = Annotated[tuple[str, ...], Meta(min_length=1)]
Figure = Annotated[float, Meta(gt=0)]


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


class Backing(Enum):
    """Who says that a build works on a GPU."""

    SUPPORTED = "supported"  # AMD lists the GPU for it
    RELEASED = "released"  # by PyTorch, which does not say on which GPUs it is tested
    TESTED = "tested"  # TheRock calls it release-ready
    BUILT = "built"  # nobody


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


class Source(Value, frozen=True, kw_only=True):
    """Where a statement comes from, so that it survives a renamed repository."""

    owner: str  # who publishes it: a GitHub organisation, or a company
    name: str  # the repository or the document
    title: str
    date: str  # of the statement, ISO 8601, as exactly as it is known: 2025, 2025-11 or 2025-11-04
    url: str = ""
    number: int | None = None  # of the issue, discussion or pull request


class KnowledgeEntry(Value, frozen=True, kw_only=True):
    """What an entry of any table says of itself."""

    sources: tuple[str, ...] = ()
    checked: str = ""  # the day someone compared it with the current state, ISO 8601
    valid: dict[str, str] = msgspec.field(default_factory=dict)  # rocm, torch, kernel: a range
    evidence: str = ""  # measured, official, code, "reported by 3"; "" follows from the sources
    disputed: bool = False  # sources disagree, and the text says how


SCRIPT = "python train.py"  # in advice


class Step(Value, frozen=True, kw_only=True):
    text: str
    commands: tuple[str, ...] = ()
    windows: tuple[str, ...] = ()  # what to type in PowerShell instead, where that differs
    gpus: tuple[str, ...] = ()  # architectures or families that it is for; none: for any

    def typed(self, command: str) -> tuple[str, ...]:
        """Return what to type for somebody's own command."""
        return tuple(each.replace(SCRIPT, command) for each in self.commands)


class Area(Enum):
    """The part of a machine that a rule is about."""

    GPU = "GPU"
    DRIVER = "Driver"
    MEMORY = "Memory"
    SETTINGS = "Settings"
    PYTORCH = "PyTorch"


class Fix(Step, frozen=True, kw_only=True):
    """What a person should do. What the program does by itself is a remedy."""

    container: tuple[str, ...] = ()  # what to do instead for a container, where that differs
    set: dict[str, str] = msgspec.field(default_factory=dict)  # if the commands set only these,
    unset: tuple[str, ...] = ()  # and unset only these: a run can do it by itself
    needs: tuple[Need, ...] = ()
    verify: str = ""  # how to see that it worked
    check: tuple[str, ...] = ()  # commands that only look, to be typed first
    mends: bool = True  # False: the GPU stays out of use, and this is what to do instead
    then: tuple[Step, ...] = ()  # in this order, if the first did not help
