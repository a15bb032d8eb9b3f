"""Ways to get a job done that cannot be tried here: what is known of them, and where they apply."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from pathlib import Path

from rocsteady.knowledge.hardware import WheelRelease
from rocsteady.knowledge.reader import (
    DATA,
    SLUG,
    Problems,
    _by_name,
    _document,
    _entries,
    _sources,
)
from rocsteady.plan import Risk
from rocsteady.vocabulary import Confidence, Value


class System(Enum):
    """What a training would run under. WSL is told from Linux: its GPU is behind Windows."""

    LINUX = "linux"
    WINDOWS = "windows"
    WSL = "wsl"


SPOKEN: Mapping[System, str] = {
    System.LINUX: "Linux",
    System.WINDOWS: "Windows",
    System.WSL: "WSL",
}


class Platform(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Systems, and the architectures for which a way can be had on them."""

    os: tuple[System, ...]
    gfx: tuple[str, ...] = ()  # none named: any


class OtherWay(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One way that asks for another system, other software or another script."""

    id: str
    title: str
    verdict: str  # one or two sentences
    risk: Risk
    sources: tuple[str, ...]
    confidence: Confidence
    setup: tuple[float, float] | None = None  # minutes of work by hand; None: no source says
    setup_by: str = ""  # the source of that
    against: bool = False  # it is known, and advised against
    changes: str = ""  # what must be changed in the script; "": nothing
    failures: tuple[str, ...] = ()  # kinds of failures.toml that it may answer
    findings: tuple[str, ...] = ()  # rules that it may answer
    gpus: int = 0  # so many at least
    where: tuple[Platform, ...] = ()  # none named: anywhere
    never: tuple[str, ...] = ()  # architectures for which it cannot be had
    quiet: bool = False  # where it cannot be had, that is not worth a word
    note: str = ""


def load_other_ways(folder: Path = DATA) -> tuple[OtherWay, ...]:
    """Read the ways, and refuse wrong ones by file, entry and field."""
    sources = _sources(folder / "sources.toml")

    def wrong_with(way: OtherWay) -> Problems:
        if not SLUG.fullmatch(way.id):
            yield "id", "lower case words joined by hyphens"
        for field in ("title", "verdict"):
            if not str(getattr(way, field)).strip():
                yield field, "empty"
        if not way.sources:
            yield "sources", "every way has one"
        for key in way.sources:
            if key not in sources:
                yield "sources", f"{key!r} is not in sources.toml"
        yield from _wrong_with_setup(way, sources)
        if way.gpus < 0:
            yield "gpus", "at least 0"
        if any(not place.os for place in way.where):
            yield "where", "a place names its systems"

    entries = _entries(_document(folder / "ways.toml", "way"), "way", OtherWay)
    return tuple(_by_name(entries, lambda way: way.id, "id", wrong_with).values())


def _wrong_with_setup(way: OtherWay, sources: Collection[str]) -> Problems:
    if (way.setup is None) != (not way.setup_by):
        yield "setup_by", "goes with setup"
    if way.setup is not None and not 0 <= way.setup[0] <= way.setup[1]:
        yield "setup", "at least and at most, in minutes"
    if way.setup_by and way.setup_by not in sources:
        yield "setup_by", f"{way.setup_by!r} is not in sources.toml"


def answers(  # noqa: PLR0913 - each is said by name
    way: OtherWay,
    *,
    os: System,
    gfx: str | None,
    gpus: int,
    failures: Collection[str],
    findings: Collection[str],
) -> bool:
    """Tell whether a way is worth naming here: it answers what was seen, possible or not.

    One that names neither failures nor findings is worth it wherever it is possible.
    """
    asked_for = bool(way.failures or way.findings)
    if (way.quiet or not asked_for) and impossible_because(way, os=os, gfx=gfx, gpus=gpus):
        return False
    seen = not set(way.failures).isdisjoint(failures) or not set(way.findings).isdisjoint(findings)
    return seen or not asked_for


def impossible_because(way: OtherWay, *, os: System, gfx: str | None, gpus: int) -> str:
    """Say in a few words why a way cannot be had here; "" if it can, as far as is known."""
    places = [place for place in way.where if os in place.os]
    if way.where and not places:
        return f"this is {SPOKEN[os]}"
    if gpus < way.gpus:
        return f"it needs {way.gpus} GPUs, {gpus or 'none'} here"
    if gfx is None:
        return ""
    if gfx in way.never or not all(not place.gfx or gfx in place.gfx for place in places):
        return f"there is none for {gfx} on {SPOKEN[os]}"
    return ""


def wheels_for(gfx: str, wheels: Iterable[WheelRelease]) -> tuple[WheelRelease, ...]:
    """Return the releases of pytorch.org that have code for an architecture, the newest first."""
    return tuple(wheel for wheel in reversed(tuple(wheels)) if gfx in wheel.arches)
