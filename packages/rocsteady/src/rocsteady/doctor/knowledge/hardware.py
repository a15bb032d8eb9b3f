"""What is known of GPUs, of the wheels built for them, and of the variables people set."""

from __future__ import annotations

import msgspec

from rocsteady.doctor.knowledge.values import Backing, KnowledgeEntry
from rocsteady.model import Value


class Arch(KnowledgeEntry, frozen=True, kw_only=True):
    """One instruction set that the driver reports, such as gfx1100."""

    gfx: str
    family: str  # code of one family may run on another member; across families it must not
    name: str
    generic: str = ""  # LLVM's generic target that runs on it, if there is one
    cards: tuple[str, ...] = ()  # products that AMD or LLVM name for it
    systems: tuple[str, ...] = ()  # linux, wsl, windows: where AMD supports it; none: any
    note: str = ""  # for somebody who looks for a build and finds none
    linux_note: str = ""  # the same, where ROCr reads the variable that it names
    sources: tuple[str, ...] = ()  # of the products and the note


class Product(Value, frozen=True, kw_only=True):
    """One card, by PCI device and revision; without a revision, any."""

    device: int
    name: str
    gfx: str
    revision: int | None = None
    integrated: bool = False


class Wheels(KnowledgeEntry, frozen=True, kw_only=True):
    """Builds of torch that have the same code."""

    torch: str  # a version range, as pip writes it
    rocm: str  # the stable pairing
    arches: tuple[str, ...]
    sources: tuple[str, ...]
    python: str = ""  # a version range
    note: str = ""


class WheelRelease(Wheels, frozen=True, kw_only=True):
    """What the ROCm wheels of one range of PyTorch releases contain."""

    latest: str = ""  # the release to install

    @property
    def title(self) -> str:
        return f"{self.torch} for ROCm {self.rocm}"


class WheelIndex(Wheels, frozen=True, kw_only=True):
    """An index of AMD's with one torch for all GPUs, and an extra for each."""

    id: str
    title: str
    address: str
    systems: tuple[str, ...]  # linux, wsl, windows
    pin: str = ""  # what pip needs to take this release and not the newest
    pre: bool = False  # pip takes its builds only if it is told to
    avoid: tuple[str, ...] = ()  # architectures that are built and are not to be recommended
    supported: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)  # by AMD; by system
    tested: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)  # by TheRock

    def backing(self, gfx: str, system: str) -> Backing:
        if gfx in self.supported.get(system, ()):
            return Backing.SUPPORTED
        return Backing.TESTED if gfx in self.tested.get(system, ()) else Backing.BUILT


class Variable(KnowledgeEntry, frozen=True, kw_only=True):
    """One environment variable that a component reads, or that people set in vain."""

    name: str
    read_by: str  # "" if nothing reads it
    meaning: str
    sources: tuple[str, ...]
    debugging: bool = False  # it helps to find a fault, and slows training
    building: bool = False  # it is read only when code is compiled
    default: str = ""  # the value that changes nothing
    takes: tuple[str, ...] = ()  # its values: a form such as "switch", or each word; none: any
    found_in: str = ""  # the newest release in whose sources tools/watch_variables.py found it
    cancels: tuple[str, ...] = ()  # variables that have no effect while this one is set
    cancels_at: tuple[str, ...] = ()  # only with one of these values; none: with any
