"""What the GPUs are at: load, memory, temperature and power, each asked by a child that may hang.

A GPU that sleeps is not asked, because the question would wake it. One that does not answer is said
not to: that is evidence too.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path

import msgspec

from rocsteady.hangs.cgroups import ROOT, read
from rocsteady.hangs.parallel import run_all
from rocsteady.model import Value
from rocsteady.system.bounded_call import AnswerKind, ask

CARDS = "sys/class/drm"
AMD = "0x1002"
AWAKE = frozenset({"active", "unsupported", ""})  # what the power management says
READING = Path(__file__).with_name("gpu_counter_program.py")


class GpuReading(Value, frozen=True, kw_only=True):
    """What one GPU answered. None is "not told"."""

    busy_percent: int | None = None  # 100 is normal in a hung one: never a sign of progress
    memory_busy_percent: int | None = None
    vram_used_bytes: int | None = None
    vram_total_bytes: int | None = None
    gtt_used_bytes: int | None = None
    gtt_total_bytes: int | None = None
    power_watts: float | None = None
    clock_hz: int | None = None  # of the shaders
    temperatures_celsius: dict[str, float] = msgspec.field(default_factory=dict)


class GpuCounters(Value, frozen=True, kw_only=True):
    """One GPU, and what it answered."""

    card: str
    pci_address: str
    asleep: bool
    reading: GpuReading | None
    why_not: str = ""


def read_gpu_counters(*, within: timedelta, root: Path = ROOT) -> tuple[GpuCounters, ...]:
    """Ask every AMD GPU that is awake, all at once, each in a child of its own."""
    cards = [path for path in sorted((root / CARDS).glob("card*")) if path.name[4:].isdecimal()]
    ours = [card for card in cards if read(card / "device/vendor").strip() == AMD]
    asked = run_all(
        {card.name: _Question(card, within).ask for card in ours}, within=within * 1.2, at_once=16
    )
    return tuple(
        asked.results.get(card.name) or _without(card, why_not=asked.missing[card.name])
        for card in ours
    )


class _Question:
    def __init__(self, card: Path, within: timedelta) -> None:
        self._card, self._within = card, within

    def ask(self) -> GpuCounters:
        device = self._card / "device"
        if read(device / "power/runtime_status").strip() not in AWAKE:
            return _without(
                self._card, asleep=True, why_not="it is asleep, and a query would wake it"
            )
        command = [sys.executable, "-I", "-S", str(READING), str(device)]
        answer = ask(command, within=self._within)
        if answer.outcome is not AnswerKind.ANSWERED:
            return _without(
                self._card, why_not=f"the process that queried it: {answer.outcome.value}"
            )
        try:
            reading = msgspec.json.decode(answer.text, type=GpuReading)
        except msgspec.DecodeError as error:
            return _without(self._card, why_not=f"its answer cannot be read: {error}")
        return GpuCounters(
            card=self._card.name, pci_address=_address(self._card), asleep=False, reading=reading
        )


def _without(card: Path, *, why_not: str, asleep: bool = False) -> GpuCounters:
    return GpuCounters(
        card=card.name, pci_address=_address(card), asleep=asleep, reading=None, why_not=why_not
    )


def _address(card: Path) -> str:
    """Return where it is on the PCI bus: the folder that the link to its device leads to."""
    return (card / "device").resolve().name
