"""Options that cannot be tried here: what is known about them, and where they apply."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import Annotated

from msgspec import Meta

from rocsteady.doctor.knowledge.hardware import WheelRelease
from rocsteady.doctor.knowledge.reader import DataFolder, Problems, unsourced
from rocsteady.doctor.knowledge.values import Confidence, Slug, Sources, Text
from rocsteady.model import Risk, Value


class OperatingSystem(Enum):
    """What a training would run under. WSL is told from Linux: its GPU is behind Windows."""

    LINUX = "linux"
    WINDOWS = "windows"
    WSL = "wsl"


SPOKEN: Mapping[OperatingSystem, str] = {
    OperatingSystem.LINUX: "Linux",
    OperatingSystem.WINDOWS: "Windows",
    OperatingSystem.WSL: "WSL",
}


class Platform(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Systems, and the architectures for which an option can be had on them."""

    os: Annotated[tuple[OperatingSystem, ...], Meta(min_length=1)]
    gfx: tuple[str, ...] = ()  # none named: any


class OtherOption(Value, frozen=True, kw_only=True):
    """One option that asks for another system, other software or another script."""

    id: Slug
    title: Text
    verdict: Text  # one or two sentences
    risk: Risk
    sources: Sources
    confidence: Confidence
    setup: tuple[float, float] | None = None  # minutes of work by hand; None: no source says
    setup_by: str = ""  # the source of that
    against: bool = False  # it is known, and advised against
    changes: str = ""  # what must be changed in the script; "": nothing
    failures: tuple[str, ...] = ()  # kinds of failures.toml that it may answer
    findings: tuple[str, ...] = ()  # rules that it may answer
    gpus: Annotated[int, Meta(ge=0)] = 0  # so many at least
    where: tuple[Platform, ...] = ()  # none named: anywhere
    never: tuple[str, ...] = ()  # architectures for which it cannot be had
    quiet: bool = False  # where it cannot be had, that is not worth a word
    note: str = ""

    @property
    def names_gpus(self) -> bool:
        """Whether it is for some AMD GPUs and not for others, so that without one it is nothing."""
        return bool(self.never or any(place.gfx for place in self.where))


def load_other_options(data: DataFolder | None = None) -> tuple[OtherOption, ...]:
    data = data or DataFolder()
    sources = data.sources

    def wrong_with(option: OtherOption) -> Problems:
        yield from unsourced(option.sources, sources)
        yield from _wrong_with_setup(option, sources)

    entries = data.entries(data.document("options.toml", "option"), "option", OtherOption)
    return tuple(data.named(entries, "id", wrong_with).values())


def _wrong_with_setup(option: OtherOption, sources: Collection[str]) -> Problems:
    if (option.setup is None) != (not option.setup_by):
        yield "setup_by", "goes with setup"
    if option.setup is not None and not 0 <= option.setup[0] <= option.setup[1]:
        yield "setup", "at least and at most, in minutes"
    if option.setup_by and option.setup_by not in sources:
        yield "setup_by", f"{option.setup_by!r} is not in sources.toml"


def answers(option: OtherOption, seen: Collection[str], *, possible: bool) -> bool:
    """Return whether an option is worth naming: it answers the failures and findings seen.

    One that names neither is worth it wherever it is possible.
    """
    asked_for = {*option.failures, *option.findings}
    if not possible and (option.quiet or not asked_for):
        return False
    return not asked_for or not asked_for.isdisjoint(seen)


def impossible_because(
    option: OtherOption, *, os: OperatingSystem, gfx: str | None, gpus: int
) -> str:
    """Return in a few words why an option cannot be had here; "" if it can, as far as is known."""
    places = [place for place in option.where if os in place.os]
    if option.where and not places:
        return f"this is {SPOKEN[os]}"
    if gpus < option.gpus:
        return f"it needs {option.gpus} GPUs, {gpus or 'none'} here"
    if gfx is None:
        return ""
    if gfx in option.never or not all(not place.gfx or gfx in place.gfx for place in places):
        return f"there is none for {gfx} on {SPOKEN[os]}"
    return ""


def wheels_for(gfx: str, wheels: Iterable[WheelRelease]) -> tuple[WheelRelease, ...]:
    """Return the releases of pytorch.org that have code for an architecture, the newest first."""
    return tuple(wheel for wheel in reversed(tuple(wheels)) if gfx in wheel.arches)
