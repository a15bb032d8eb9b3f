"""What people share of their machines: the form of an entry, what makes one acceptable, and counts.

An entry holds numbers, versions and names that the knowledge base has; there is no field for text.
One account counts once in a cell (a GPU with one build of PyTorch), with its newest entry, so that
nobody is heard twice. A statement needs several people, and a share that false entries alone would
hardly reach.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator
from enum import Enum
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from rocsteady.doctor.knowledge.hardware import Variable
from rocsteady.doctor.knowledge.reader import DataFolder, Knowledge
from rocsteady.model import Value

ENTRY_VERSION = 1
ENTRY_LIMIT = 4096  # bytes of JSON
FIRST_MONTH = "2026-11"
RUN = "run"  # what was tried, where it was no probe
FALSE_SHARE = 0.02  # of entries that may be false; bounds are wider by as much
FEWEST_PEOPLE = 3  # that a statement needs
LEAST_SHARE = 0.05  # that its lower bound must reach
Z = 1.96  # 95 %
ALLOCATOR = re.compile(
    r"(?:(?:^|,)(?:expandable_segments:(?:True|False)|max_split_size_mb:\d{1,5}"
    r"|garbage_collection_threshold:0\.\d{1,2}|roundup_power2_divisions:\d{1,2}))+"
)

Gfx = Annotated[str, Meta(pattern=r"^gfx[0-9a-f]{3,5}$")]
Minor = Annotated[str, Meta(pattern=r"^\d{1,2}\.\d{1,2}$")]  # 6.14
Release = Annotated[str, Meta(pattern=r"^\d{1,2}\.\d{1,2}(\.\d{1,2})?$")]  # 2.12.1
Month = Annotated[str, Meta(pattern=r"^20\d\d-(0[1-9]|1[0-2])$")]
Slug = Annotated[str, Meta(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=40)]
VariableName = Annotated[str, Meta(pattern=r"^[A-Z][A-Z0-9_]{1,63}$")]
Device = Annotated[int, Meta(ge=1, le=0xFFFF)]
Small = Annotated[int, Meta(ge=1, le=1024)]
Count = Annotated[int, Meta(ge=1, le=10_000_000)]


class SystemClass(Enum):
    LINUX = "linux"
    CONTAINER = "linux container"
    WSL = "wsl"
    WINDOWS = "windows"


class MadeBy(Enum):
    """Whose index a build of torch is from."""

    PYTORCH = "pytorch"
    AMD = "amd"
    OTHER = "other"


class Strict(Value, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A part of an entry. What is not known is left out."""


class SharedGpu(Strict, frozen=True, kw_only=True):
    gfx: Gfx
    device: Device | None = None  # PCI
    compute_units: Small | None = None
    memory_gib: Small | None = None
    count: Small = 1


class Workaround(Strict, frozen=True, kw_only=True):
    failure: Slug
    workaround: Slug
    runs: Count  # that it got further


class Tried(Strict, frozen=True, kw_only=True):
    """What was tried, how often, and what went wrong."""

    what: Slug  # "run", or a probe
    times: Count
    failures: dict[Slug, Count] = msgspec.field(default_factory=dict)
    helped: tuple[Workaround, ...] = ()


class Entry(Strict, frozen=True, kw_only=True):
    version: int
    month: Month
    rocsteady: Annotated[str, Meta(pattern=r"^\d{1,2}\.\d{1,3}\.\d{1,3}(\.dev\d)?$")]
    gpu: SharedGpu
    system: SystemClass
    kernel: Minor | None = None
    driver: Annotated[str, Meta(pattern=r"^\d{1,2}\.\d{1,2}\.\d{1,2}$")] | None = None  # DKMS
    rocm: Release | None = None  # that torch was built for
    torch: Release
    torch_index: MadeBy
    python: Minor | None = None
    variables: dict[VariableName, str] = msgspec.field(default_factory=dict)
    tried: tuple[Tried, ...] = ()

    @property
    def cell(self) -> tuple[str, str, str, str]:
        system = SystemClass.LINUX if self.system is SystemClass.CONTAINER else self.system
        return self.gpu.gfx, _minor(self.torch), _minor(self.rocm or ""), system.value


class Names(NamedTuple):
    """What an entry may name beside GPUs and variables."""

    failures: Collection[str]
    workarounds: Collection[str]
    probes: Collection[str]


def is_known_value(value: str, variable: Variable) -> bool:
    """Return whether many people have it: a value that nobody else has names its owner."""
    common = r"(?i)[01]|[1-9]\d{0,3}|true|false|on|off|yes|no|\d(,\d){0,15}|\d{1,2}\.\d\.\d{1,2}"
    return bool(
        re.fullmatch(common, value) or ALLOCATOR.fullmatch(value) or value in variable.takes
    )


def decode_entry(text: str | bytes) -> Entry:
    """Read an entry; raises msgspec.DecodeError, whose text names the field."""
    if len(text) > ENTRY_LIMIT:
        raise msgspec.ValidationError(f"longer than {ENTRY_LIMIT:,} bytes")
    return msgspec.json.decode(text, type=Entry)


def entry_problems(
    entry: Entry, knowledge: Knowledge, names: Names, this_month: str
) -> Iterator[str]:
    """Yield why an entry of the right form is not acceptable."""
    if entry.version != ENTRY_VERSION:
        yield f"version: {entry.version} is not {ENTRY_VERSION}"
    if not FIRST_MONTH <= entry.month <= this_month:
        yield f"month: {entry.month} is not between {FIRST_MONTH} and {this_month}"
    yield from _wrong_hardware(entry, knowledge)
    for name, value in entry.variables.items():
        variable = knowledge.variables.get(name)
        if variable is None:
            yield f"variables: {name} is not on the list"
        elif not is_known_value(value, variable):
            yield f"variables: {name}: a value that is not on the list"
    if not entry.tried:
        yield "tried: nothing was tried"
    for tried in entry.tried:
        yield from _wrong_trial(tried, names)


def _wrong_hardware(entry: Entry, knowledge: Knowledge) -> Iterator[str]:
    gpu = entry.gpu
    if gpu.gfx not in knowledge.arches:
        yield f"gpu.gfx: {gpu.gfx} is not known"
    products = {product.gfx for product in knowledge.products if product.device == gpu.device}
    if products and gpu.gfx not in products:
        yield f"gpu.device: {gpu.device:#06x} is not a {gpu.gfx}"
    windows = entry.system is SystemClass.WINDOWS
    if windows and (entry.kernel or entry.driver):
        yield "kernel: Windows has none"
    if not windows and entry.kernel and _numbers(entry.kernel) < (4, 15):
        yield f"kernel: {entry.kernel} is older than the driver"
    rows = [row for row in (*knowledge.wheels, *knowledge.indexes) if entry.rocm]
    covered = {_minor(row.rocm) for row in rows}
    if entry.rocm and _numbers(entry.rocm)[0] > _numbers(max(covered, key=_numbers))[0] + 1:
        yield f"rocm: {entry.rocm} does not exist"
    if _numbers(entry.torch) > (knowledge.newest_torch().major + 1,):
        yield f"torch: {entry.torch} does not exist"


def _wrong_trial(tried: Tried, names: Names) -> Iterator[str]:
    if tried.what != RUN and tried.what not in names.probes:
        yield f"tried: {tried.what} is not a probe"
    if sum(tried.failures.values()) > tried.times:
        yield f"tried: {tried.what}: more failures than tries"
    for kind in tried.failures:
        if kind not in names.failures:
            yield f"tried: {kind} is not a failure"
    for each in tried.helped:
        if each.workaround not in names.workarounds:
            yield f"tried: {each.workaround} is not a workaround"
        if each.runs > tried.failures.get(each.failure, 0):
            yield f"tried: {each.workaround} helped more often than {each.failure} occurred"


def _minor(release: str) -> str:
    return ".".join(release.split(".")[:2])


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(int(number) for number in release.split("."))


# Counts: what the package ships, and what is said of them.


class Received(Value, frozen=True, kw_only=True):
    """An entry, and who sent it."""

    issue: int
    sender: str  # a hash
    entry: Entry


class FailureCount(Value, frozen=True, kw_only=True):
    kind: str
    people: int
    first: str  # month
    helped: dict[str, int] = msgspec.field(default_factory=dict)  # people, by workaround


class Cell(Value, frozen=True, kw_only=True):
    """What people reported of one GPU with one build of PyTorch."""

    gfx: str
    torch: str
    rocm: str
    system: str
    people: int
    first: str  # month
    last: str
    kernels: dict[str, int] = msgspec.field(
        default_factory=dict
    )  # people, by kernel; "" is not known
    failures: tuple[FailureCount, ...] = ()


class Share(NamedTuple):
    """How many of how many, and the bounds of the share among all (95 %)."""

    part: int
    whole: int
    low: float
    high: float


def share(part: int, whole: int) -> Share:
    """Return Wilson's bounds, wider by the share of entries that may be false."""
    rate, square = part / whole, Z * Z / whole
    middle = rate + square / 2
    spread = Z * math.sqrt(rate * (1 - rate) / whole + square / (4 * whole))
    low, high = (middle - spread) / (1 + square), (middle + spread) / (1 + square)
    return Share(part, whole, max(0.0, low - FALSE_SHARE), min(1.0, high + FALSE_SHARE))


def can_be_stated(found: Share) -> bool:
    return found.part >= FEWEST_PEOPLE and found.low >= LEAST_SHARE


def count(received: Iterable[Received]) -> list[Cell]:
    """Count people by cell, each with the newest entry."""
    newest: dict[tuple[str, ...], Received] = {}
    for each in sorted(received, key=lambda it: (it.entry.month, it.issue)):
        newest[each.sender, *each.entry.cell] = each
    cells: dict[tuple[str, str, str, str], list[Entry]] = {}
    for each in newest.values():
        cells.setdefault(each.entry.cell, []).append(each.entry)
    return [_cell(where, entries) for where, entries in sorted(cells.items())]


def _cell(where: tuple[str, str, str, str], entries: list[Entry]) -> Cell:
    gfx, torch, rocm, system = where
    kernels: dict[str, int] = {}
    seen: dict[str, list[str]] = {}  # months, by failure
    helped: dict[str, dict[str, int]] = {}
    for entry in entries:
        kernels[entry.kernel or ""] = kernels.get(entry.kernel or "", 0) + 1
        for kind in sorted({kind for tried in entry.tried for kind in tried.failures}):
            seen.setdefault(kind, []).append(entry.month)
        for kind, name in sorted(
            {(it.failure, it.workaround) for tried in entry.tried for it in tried.helped}
        ):
            of_kind = helped.setdefault(kind, {})
            of_kind[name] = of_kind.get(name, 0) + 1
    failures = [
        FailureCount(kind=kind, people=len(months), first=min(months), helped=helped.get(kind, {}))
        for kind, months in sorted(seen.items(), key=lambda it: (-len(it[1]), it[0]))
    ]
    return Cell(
        gfx=gfx,
        torch=torch,
        rocm=rocm,
        system=system,
        people=len(entries),
        first=min(entry.month for entry in entries),
        last=max(entry.month for entry in entries),
        kernels=dict(sorted(kernels.items())),
        failures=tuple(failures),
    )


def load_cells(data: DataFolder | None = None) -> tuple[Cell, ...]:
    data = data or DataFolder()
    document = data.document("observations.json", "cell")
    return tuple(cell for _, cell in data.entries(document, "cell", Cell))
