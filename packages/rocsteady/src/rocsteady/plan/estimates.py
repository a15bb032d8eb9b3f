"""Options that cannot run here: another system, other software, a rented card. All are estimates.

The pace is scaled from what was measured here. What is not compute stays as it is; compute goes
faster by the ratio of the cards' peak figures, the smallest and the largest of them. A card without
figures has a speed that is not known. From a CPU the ratio is between a tenth of that of the memory
bandwidths and that of the FLOP/s, and a step on a GPU takes at least as long as starting its
kernels does: a small model may be slower there. That is so for every GPU, of a recorded machine and
a rented one: the CPU beside it does not count.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import PurePath

from msgspec.structs import replace

from rocsteady.doctor.knowledge.gpu_rental import CardSpeed, Offer, is_old, load_offers, load_speeds
from rocsteady.doctor.knowledge.options import (
    OperatingSystem,
    OtherOption,
    answers,
    impossible_because,
    load_other_options,
    wheels_for,
)
from rocsteady.doctor.knowledge.reader import DataFolder, load_knowledge
from rocsteady.doctor.training_gpus import visible
from rocsteady.model import Risk, Strategy, Value
from rocsteady.plan.bottleneck import max_speedup, shares_of
from rocsteady.plan.circumstances import Circumstances
from rocsteady.plan.exports.export import ranks_per_host
from rocsteady.plan.trials import COMPUTE
from rocsteady.plan.values import Basis, Option, Pace, Price
from rocsteady.run.engines.plain_command import LAUNCHERS

CLOUD, WHEEL = "cloud", "wheel-pytorch"
WHEELS = (WHEEL, "wheel-multi-arch", "wheel-multi-arch-untested")
CORE_TFLOPS, CPU_BANDWIDTH = 0.05, 50.0  # fp32 of one processor, GB/s of all; usual figures
USED = 0.1  # of a card's bandwidth, by what uses it badly
LAUNCHES = (0.0005, 0.005)  # seconds that starting the kernels of a step takes; our guess
SCALING = 0.75  # power of the number of processors with which the speed of a CPU grows; our guess
MOST_CORES = 32  # that one training uses well; our guess
OTHER_CPU = 2.0  # times, up or down, for another processor model; our guess
UNKNOWN_CPU = 4.0  # the same where the number of processors is not known
UNSURE = 1.3  # times, up or down, for the same card under other software; our own guess
SHOWN_OFFERS = 2
SEVERAL = 4  # cards of one rented machine; our guess of what can be had
ON_ALL_GPUS = ("ddp", "manual-averaging")  # options that are faster with more of them
NO_TRIAL = "no trial measured a speed to scale"
NO_FIGURES = "speed not known: rocsteady has no peak figures of the GPU to scale by"
LAUNCHED = ("ddp", "data-parallel")  # what a script already has that torchrun starts
DISTRIBUTED = "the model is wrapped in DistributedDataParallel and the script started by torchrun"
UNKNOWN_SETUP = 240.0  # minutes, where nobody says how long it takes; our guess


class Measured(Value, frozen=True, kw_only=True):
    """The pace that estimates start from."""

    pace: Pace
    on_gpu: bool
    card: CardSpeed | None = None  # on which it was measured
    own: float | None = 0.0  # share of the script's own Python, which no card speeds up
    cores: int = 0  # of the machine that it was measured on; 0: not known
    recorded: bool = False  # the plan is for a recorded machine, and not for the one measured
    target: CardSpeed | None = None  # the card of the recorded machine
    target_cores: int = 0  # of the recorded machine; 0: not known

    @property
    def share(self) -> float:
        """Return the share of a step that another card can speed up, at most; all if none tells."""
        shares = shares_of(self.pace)
        compute = sum(shares.get(phase, 0.0) for phase in COMPUTE) if shares else 1.0
        return max(0.0, compute - (self.own or 0.0))

    @property
    def share_text(self) -> str:
        unknown = ", some of which may be the script's own code" if self.own is None else ""
        return f"the {100 * self.share:.0f} % that is compute{unknown}"


def other_options(
    here: Circumstances, failures: Sequence[str], command: Sequence[str] = ()
) -> tuple[tuple[OtherOption, ...], tuple[Option, ...]]:
    """Return the options that are worth a row, and those that are ruled out."""
    launched = _is_launched(command)
    system = OperatingSystem.WSL if here.wsl else OperatingSystem(here.os)
    gfx = here.gfx[0] if here.gfx else None
    rules, gpus = [finding.rule for finding in here.findings], here.gpus_together
    possible, out = [], []
    for option in load_other_options():
        if (launched and option.id in LAUNCHED) or (option.names_gpus and not here.has_amd_gpu):
            continue
        why = impossible_because(option, os=system, gfx=gfx, gpus=gpus)
        if not answers(option, {*failures, *rules}, possible=not why):
            continue
        if why or option.against:
            out.append(_ruled_out(option, why or option.verdict))
        else:
            possible.append(_naming_a_wheel(option, gfx) if option.id == WHEEL and gfx else option)
    return tuple(possible), tuple(out)


def row(option: OtherOption, measured: Measured | None, *, gpus: int = 1) -> Option:
    pace, basis = same_card(measured)
    if pace is not None and gpus > 1 and option.id in ON_ALL_GPUS:
        pace, guess = _on_several(pace, gpus)
        basis = (guess,)
    basis += _setup_rests_on(option)
    return Option(
        id=option.id,
        title=option.title,
        basis=Basis.ESTIMATE,
        pace=pace,
        setup=option.setup,
        risk=option.risk,
        rests_on=(option.verdict, *basis),
        sources=option.sources,
        changes=f"script: {option.changes}" if option.changes else "",
    )


def _is_launched(command: Sequence[str]) -> bool:
    return any(PurePath(word).name in LAUNCHERS for word in command[:3])


def _on_several(pace: Pace, gpus: int) -> tuple[Pace, str]:
    more = _estimated(pace, pace.rate * math.sqrt(gpus), pace.low, pace.high * gpus)
    return more, f"between one GPU's pace and {gpus} times that: rocsteady's guess"


def memory_of(here: Circumstances) -> float:
    """Return the GB of the GPU that would train; 0: not known."""
    seen = visible(here.machine)[here.best_gpu :] if here.machine else ()
    if not seen:
        return here.card.memory if here.card else 0.0
    shared = (seen[0].gtt_bytes or 0) if seen[0].integrated else 0
    return round(((seen[0].vram_bytes or 0) + shared) / (1 << 30), 1)


def cloud_rows(
    option: OtherOption,
    measured: Measured | None,
    today: date,
    more_than: float = 0.0,
    command: Sequence[str] = (),
) -> Iterator[Option]:
    """Make rows of each card that has more GB, as the offer that makes most of a dollar.

    One row is of a single card, and one of several, for which most scripts must be changed. A
    torchrun has one, with a card for each rank.
    """
    cards, sources = load_speeds(), DataFolder().sources
    ranks, found = ranks_per_host(tuple(command)) or 1, []
    for offer in load_offers():
        card = cards[offer.card]
        if card.memory > more_than:
            pace, basis = _on(card, measured)
            found.append((offer, pace, basis))
    by_price = sorted(found, key=lambda each: each[0].dollars / (each[1].rate if each[1] else 1))
    chosen: dict[str, tuple[Offer, Pace | None, tuple[str, ...]]] = {}
    for each in by_price:  # one row a card
        chosen.setdefault(each[0].card, each)
    for offer, pace, basis in chosen.values():
        price = Price(
            dollars=offer.dollars,
            as_of=offer.as_of.isoformat(),
            source=sources[offer.source].url,
            old=is_old(offer, today),
        )
        single = Option(
            id=f"{CLOUD}-{offer.id}",
            title=f"cloud, {offer.card}, {offer.provider}",
            basis=Basis.ESTIMATE,
            pace=pace,
            setup=option.setup,
            risk=Risk.LOW,
            price=price,
            rests_on=(*basis, *_setup_rests_on(option)),
            sources=(offer.source, *option.sources),
        )
        if ranks == 1:
            yield single
        if pace is not None or ranks > 1:
            count = ranks if ranks > 1 else SEVERAL
            together, guess = _on_several(pace, count) if pace else (None, "one card for each rank")
            yield replace(
                single,
                id=f"{single.id}+{count}",
                title=f"cloud, {count} x {offer.card}, {offer.provider}",
                strategy=Strategy(gpus=tuple(range(count))),
                pace=together,
                price=replace(price, dollars=price.dollars * count),
                risk=Risk.MEDIUM,
                rests_on=(guess, *single.rests_on),
                changes="" if _is_launched(command) else f"script: {DISTRIBUTED}",
            )


def costs(option: Option, early: float, late: float) -> tuple[float, float] | None:
    if option.price is None:
        return None
    return option.price.dollars * early / 3600, option.price.dollars * late / 3600


def _setup_rests_on(option: OtherOption) -> tuple[str, ...]:
    """Where the minutes come from: a field note's are one person's, in one place."""
    if option.setup is None:
        return (f"set-up time unknown; {UNKNOWN_SETUP / 60:.0f} h assumed",)
    if option.setup_by.startswith("field-note"):
        return ("set-up time: one report from 2025",)
    return ()


def _naming_a_wheel(option: OtherOption, gfx: str) -> OtherOption:
    for wheel in wheels_for(gfx, load_knowledge().wheels)[:1]:
        newest = f"torch {wheel.torch} for ROCm {wheel.rocm} is the newest with code for {gfx}"
        return replace(option, verdict=f"{newest}. {option.verdict}")
    return option


def _ruled_out(option: OtherOption, why: str) -> Option:
    return Option(
        id=option.id,
        title=option.title,
        basis=Basis.RULED_OUT,
        rests_on=(why,),
        sources=option.sources,
        risk=option.risk,
    )


def on_recorded(measured: Measured | None) -> tuple[Pace | None, tuple[str, ...]]:
    """Scale to the GPU of a recorded machine, by what was measured on this one."""
    pace, basis = _on(measured.target if measured else None, measured)
    if measured is None or not measured.on_gpu or pace is None:
        return pace, basis
    basis = (*basis, "give or take 30 % for another machine: rocsteady's guess")
    return replace(pace, low=pace.low / UNSURE, high=pace.high * UNSURE), basis


def same_card(measured: Measured | None) -> tuple[Pace | None, tuple[str, ...]]:
    """Estimate the GPU of this machine, or of the recorded one, with other software."""
    if measured is None or measured.recorded:
        return on_recorded(measured)
    if not measured.on_gpu:
        return _on(measured.card, measured)
    low, high = measured.pace.low / UNSURE, measured.pace.high * UNSURE
    basis = "the pace measured on this GPU, give or take 30 %: rocsteady's guess"
    return _estimated(measured.pace, measured.pace.rate, low, high), (basis,)


def _on(card: CardSpeed | None, measured: Measured | None) -> tuple[Pace | None, tuple[str, ...]]:
    if measured is None:
        return None, (NO_TRIAL,)
    if card is None:
        return None, (NO_FIGURES,)
    if not measured.on_gpu:
        return _faster_than_cpu(measured, card)
    ratios = _ratios(measured.card, card) if measured.card else ()
    if not ratios:
        return None, (NO_FIGURES,)
    share = measured.share
    low, high = (_scaled(measured.pace.rate, share, ratio) for ratio in (min(ratios), max(ratios)))
    if measured.own is None:  # none of it may be compute
        low, high = min(low, measured.pace.rate), max(high, measured.pace.rate)
    basis = (
        f"scaled by the vendors' peak figures, {min(ratios):.1f} to {max(ratios):.1f} times, of"
        f" {measured.share_text}"
    )
    return _estimated(measured.pace, math.sqrt(low * high), low, high), (basis,)


def recorded_cpu(measured: Measured | None) -> tuple[Pace | None, tuple[str, ...]]:
    """Scale to the CPU of a recorded machine: how many of its processors the job would use is open.

    A job with one thread gains nothing by more processors.
    """
    if measured is None:
        return None, (NO_TRIAL,)
    if measured.on_gpu:
        return None, ("the trials were on a GPU, so the speed of a CPU is not known",)
    pace, cores = measured.pace, measured.target_cores
    known = cores * measured.cores
    ratio = _speed_of_cpu(cores) / _speed_of_cpu(measured.cores) if known else 1.0
    off = OTHER_CPU if known else UNKNOWN_CPU
    all_used = _scaled(pace.rate, measured.share, ratio)
    low, high = min(pace.rate, all_used), max(pace.rate, all_used)
    told = f"{cores} processors there, {measured.cores} here" if known else "its CPU is not known"
    basis = (
        f"from a trial on this machine's CPU ({told}; the job uses its own threads or all of them),"
        f" give or take {off:g} times"
    )
    return _estimated(pace, math.sqrt(low * high), low / off, high * off), (basis,)


def _speed_of_cpu(cores: int) -> float:
    """Return how many times as fast as with one processor a training is, if it uses them all."""
    return float(min(cores, MOST_CORES) ** SCALING)


def _faster_than_cpu(measured: Measured, card: CardSpeed) -> tuple[Pace, tuple[str, ...]]:
    pace = measured.pace
    most = (card.fp32 or math.inf) / (CORE_TFLOPS * _speed_of_cpu(max(measured.cores, 1)))
    most = max(1.0, min(max_speedup(pace.parameters), most))
    least = min(max(1.0, USED * (card.bandwidth or 0.0) / CPU_BANDWIDTH), most)
    step = 1 / pace.rate
    compute = step * measured.share
    rest = step - compute
    fast = 1 / (rest + max(compute / most, LAUNCHES[0]))
    surely = 0.0 if measured.own is None else compute  # that is compute and no Python
    slow = 1 / (step - surely + max(surely / least, LAUNCHES[1]))
    slow = min(slow, fast) * pace.low / pace.rate
    low, high = (f"{float(f'{times:.2g}'):g}" for times in (least, most))
    faster = f"{low} to {high} times" if low != high else "about"
    basis = (
        f"from a trial without a GPU: {faster} as fast, by peak figures and"
        f" the model's size, for {measured.share_text}; at least {LAUNCHES[0] * 1000:g} ms a step"
    )
    return _estimated(pace, math.sqrt(slow * fast), slow, fast), (basis,)


def _scaled(rate: float, share: float, ratio: float) -> float:
    return rate / (1 - share + share / ratio)


def _ratios(here: CardSpeed, there: CardSpeed) -> tuple[float, ...]:
    pairs = (
        (here.fp32, there.fp32),
        (here.half, there.half),
        (here.bandwidth, there.bandwidth),
    )
    return tuple(new / old for old, new in pairs if old and new)


def _estimated(pace: Pace, rate: float, low: float, high: float) -> Pace:
    return Pace(
        steps=0,
        seconds=0.0,
        rate=rate,
        low=low,
        high=high,
        starting=pace.starting,
    )
