"""What the GPUs are at: load, memory, temperature and power, each asked by a child that may hang.

A GPU that sleeps is not asked, because the question would wake it. One that does not answer is said
not to: that is evidence too.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path

import msgspec

from rocsteady.hangs.looking.cgroups import ROOT, read
from rocsteady.hangs.looking.kernel_log import KMSG, concerning, read_kernel_log
from rocsteady.hangs.looking.process_tree import KFD, Members, gpu_addresses
from rocsteady.model import Value
from rocsteady.system import procfs
from rocsteady.system.bounded_call import AnswerKind, ask
from rocsteady.system.parallel import run_all
from rocsteady.typed_values import decode

CARDS = "sys/class/drm"
AMD = "0x1002"
AWAKE = frozenset({"active", "unsupported", ""})  # what the power management says
READING = Path(__file__).with_name("gpu_counter_program.py")
IDLE_READINGS = 3  # in a row
IDLE_PERCENT = 1
MAX_WORDS = 120  # characters of a line of the kernel's that are told
STUCK = re.compile(
    r"ring \S+ timeout|gpu reset|gpu hang|page fault|\bMES\b.*(?:fail|timeout|respond|hang)"
    r"|queue (?:preemption|eviction) (?:failed|timed? ?out)|hang detected|wedged",
    re.IGNORECASE,
)


class GpuReading(Value, frozen=True, kw_only=True):
    """What one GPU answered. None is "not told"."""

    busy_percent: int | None = None  # 100 is normal in a hung one: never a sign of progress
    vram_used_bytes: int | None = None
    vram_total_bytes: int | None = None
    gtt_used_bytes: int | None = None
    gtt_total_bytes: int | None = None
    power_watts: float | None = None
    clock_hz: int | None = None  # of the shaders
    temperatures_celsius: dict[str, float] = msgspec.field(default_factory=dict)


class GpuCounters(Value, frozen=True, kw_only=True):
    card: str
    pci_address: str
    asleep: bool = False
    reading: GpuReading | None = None
    why_not: str = ""


def read_gpu_counters(*, within: timedelta, root: Path = ROOT) -> tuple[GpuCounters, ...]:
    """Ask every AMD GPU that is awake, all at once, each in a child of its own."""
    ours = _cards(root)
    questions = {card.name: partial(_ask, card, within) for card in ours}
    asked = run_all(questions, within=within * 1.2, at_once=16)
    return tuple(
        asked.results.get(card.name)
        or GpuCounters(card=card.name, pci_address=_address(card), why_not=asked.missing[card.name])
        for card in ours
    )


def _cards(root: Path) -> list[Path]:
    cards = [path for path in sorted((root / CARDS).glob("card*")) if path.name[4:].isdecimal()]
    return [card for card in cards if read(card / "device/vendor").strip() == AMD]


class GpuUse(Value, frozen=True, kw_only=True):
    """Memory of one GPU that one process holds."""

    gpu: int  # its number, as in what is measured
    pid: int  # the host's
    used_bytes: int
    user: str  # "" if that cannot be told from here


def gpu_users(root: Path = ROOT) -> tuple[GpuUse, ...]:
    """Return who holds memory of which GPU, by the driver's own books: no GPU is asked."""
    numbers = {_address(card).rpartition(".")[0]: n for n, card in enumerate(_cards(root))}
    found = []
    for gpu, address in gpu_addresses(root).items() if numbers else ():
        for file in (root / KFD / "proc").glob(f"[0-9]*/vram_{gpu}"):
            used = read(file).strip()
            if address in numbers and used.isdecimal() and int(used):
                pid = int(file.parent.name)
                user = procfs.owner(pid)
                found.append(GpuUse(gpu=numbers[address], pid=pid, used_bytes=int(used), user=user))
    return tuple(sorted(found, key=lambda use: (use.gpu, -use.used_bytes)))


def _ask(card: Path, within: timedelta) -> GpuCounters:
    device = card / "device"
    counters = partial(GpuCounters, card=card.name, pci_address=_address(card))
    if read(device / "power/runtime_status").strip() not in AWAKE:
        return counters(asleep=True, why_not="it is asleep, and a query would wake it")
    answer = ask([sys.executable, "-I", "-S", str(READING), str(device)], within=within)
    if answer.outcome is not AnswerKind.ANSWERED:
        return counters(why_not=f"the process that queried it: {answer.outcome.value}")
    try:
        return counters(reading=decode(answer.text, type=GpuReading))
    except msgspec.DecodeError as error:
        return counters(why_not=f"its answer cannot be read: {error}")


def _address(card: Path) -> str:
    """Return where it is on the PCI bus: the folder that the link to its device leads to."""
    return (card / "device").resolve().name


# Second signs that a GPU is stuck, for a process that has waited for it too long.
#
# A wait for the GPU looks the same whether a kernel runs for minutes or never ends. The kernel log
# may say more, and so may counters: a GPU that is idle while a process waits for it will not
# answer.


class GpuSigns:
    """Collects signs over the snapshots of one attempt."""

    def __init__(self, since: float, root: Path = ROOT, kmsg: Path = KMSG) -> None:
        self._since, self._root, self._kmsg = since, root, kmsg
        self._copied: int | None = None  # by SDMA, at the last reading
        self._idle = 0  # readings in a row

    def read(self, pids: Sequence[int], members: Members, within: timedelta) -> tuple[str, ...]:
        """Return what speaks for a GPU of these processes that is stuck, as clauses."""
        if not members.gpus:
            return ()
        log = read_kernel_log(self._since, within=within / 2, kmsg=self._kmsg)
        lines = [line for line in concerning(log.lines, members) if STUCK.search(line)]
        said = [f"the kernel says: {line.partition('] ')[2][:MAX_WORDS]}" for line in lines[:1]]
        self._idle = self._idle + 1 if self._is_idle(pids, members, within / 2) else 0
        if self._idle >= IDLE_READINGS:
            said.append("the GPU is idle while the process waits for it")
        return tuple(said)

    def _is_idle(self, pids: Sequence[int], members: Members, within: timedelta) -> bool:
        """Return whether all counters are there and show that nothing runs."""
        read, before = self._numbers(pids, "sdma_*"), self._copied
        self._copied = copied = sum(read) if read else None
        occupied = self._numbers(pids, "stats_*/cu_occupancy")
        if copied is None or copied != before or not occupied or any(occupied):
            return False
        counters = read_gpu_counters(within=within, root=self._root)
        busy = [
            gpu.reading.busy_percent if gpu.reading else None
            for gpu in counters
            if gpu.pci_address.rpartition(".")[0] in members.gpus
        ]
        return bool(busy) and all(each is not None and each <= IDLE_PERCENT for each in busy)

    def _numbers(self, pids: Sequence[int], pattern: str) -> list[int]:
        folders = [self._root / KFD / "proc" / str(pid) for pid in pids]
        try:
            return [
                int(path.read_text()) for folder in folders for path in sorted(folder.glob(pattern))
            ]
        except (OSError, ValueError):
            return []
