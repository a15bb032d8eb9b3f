"""Which probes are run, and which not and why; and what is kept of what came of them.

A probe that crashed the machine is not tried again unasked.
"""

from __future__ import annotations

import contextlib
import math
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from rocsteady.doctor.machine.machine import Machine
from rocsteady.doctor.training_gpus import trainable
from rocsteady.model import Observation, ProbeOutcome, Value
from rocsteady.probe.catalog import FRESH_START, LEVELS, Probe
from rocsteady.probe.guard import has_gone_down
from rocsteady.probe.runner import ProbeRunner
from rocsteady.probe.values import ProbeLine
from rocsteady.wording import plural

LEVEL_NAMES = tuple(map(str, LEVELS))
CONFIDENCE = 0.95
MAX_EVIDENCE = 50  # folders


class Planned(Value, frozen=True, kw_only=True):
    probe: Probe
    tries: int  # at most
    seconds: float  # at most
    about: float  # seconds that it takes
    why_not: str = ""  # why it is not run


def unknown_names(probes: Sequence[Probe], names: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name in names if not any(_is_meant(probe, name) for probe in probes))


def plan(  # noqa: PLR0913 - what it depends on, each by name
    probes: Sequence[Probe],
    level: str,
    names: Sequence[str],
    machine: Machine,
    *,
    observations: tuple[Observation, ...] = (),  # of this machine
    again: bool = False,
) -> tuple[Planned, ...]:
    """Choose: all of a level, or those that are named whatever their level."""
    depth = LEVELS.index(int(level))
    chosen = [
        probe
        for probe in probes
        if (any(_is_meant(probe, name) for name in names) if names else probe.level <= depth + 1)
    ]
    return tuple(_planned(probe, depth, machine, observations, again=again) for probe in chosen)


def newest(observations: Iterable[Observation]) -> dict[str, Observation]:
    found: dict[str, Observation] = {}
    for each in sorted(observations, key=lambda observation: observation.at):
        if each.outcome is not ProbeOutcome.NOT_RUN:
            found[each.title] = each
    return found


def line_of(probe: Probe | None, observation: Observation) -> ProbeLine:
    well = observation.outcome is ProbeOutcome.OK
    return ProbeLine(
        observation=observation,
        what=probe.what if probe else "tries",
        one_in=fewer_than_one_in(observation.tries) if well else 1,
    )


def fewer_than_one_in(tries: int) -> int:
    """Return M of "fewer than 1 in M fails" after so many tries without a failure; 1: no bound."""
    if tries < 1:
        return 1
    highest_rate = -math.expm1(math.log(1 - CONFIDENCE) / tries)
    return math.floor(1 / highest_rate)


def observe(
    planned: Planned,
    runner: ProbeRunner,
    evidence: Path,
    *,
    progress: Callable[[int], None] = lambda _: None,
) -> Observation:
    """Run one, and remember it; what is not run is an observation too, and not remembered."""
    probe = planned.probe
    if planned.why_not:
        return Observation(
            probe=probe.name,
            variant=probe.variant,
            outcome=ProbeOutcome.NOT_RUN,
            why=planned.why_not,
            at=time.time(),
        )
    seen = runner.run(probe, tries=planned.tries, seconds=planned.seconds, progress=progress)
    seen = keep_evidence(seen, evidence) if seen.bad else seen
    runner.guard.remember(seen)
    return seen


def keep_evidence(observation: Observation, folder: Path) -> Observation:
    """Move what was collected to where it stays; of very many only the newest stay."""
    source = Path(observation.evidence) if observation.evidence else None
    if source is None or not source.is_dir():
        return observation
    title = "-".join(observation.title.split())
    name = f"{time.strftime('%Y%m%d-%H%M%S', time.localtime(observation.at))}-{title}"
    number = 1
    while (target := folder / f"{name}-{number}").exists():
        number += 1
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    whole = source.parent if source.name == "evidence" else source
    try:
        shutil.move(whole, target)
    except OSError:
        return observation  # it is still where it was
    for old in sorted(folder.iterdir(), key=_age)[:-MAX_EVIDENCE]:
        shutil.rmtree(old, ignore_errors=True)
    return msgspec.structs.replace(observation, evidence=str(target))


def _age(folder: Path) -> tuple[str, float]:
    with contextlib.suppress(OSError):
        return folder.name[:15], folder.stat().st_mtime
    return "", 0.0


def _is_meant(probe: Probe, name: str) -> bool:
    return name in (probe.name, probe.title, f"{probe.name}:{probe.variant}")


def _planned(
    probe: Probe,
    depth: int,
    machine: Machine,
    observations: tuple[Observation, ...],
    *,
    again: bool,
) -> Planned:
    last = newest(observations).get(probe.title)
    tries, seconds = probe.tries[depth], probe.seconds[depth]
    alike = last is not None and last.outcome is ProbeOutcome.OK and last.tries == tries
    about = last.seconds if last and alike else seconds
    why_not = _lacking(probe, machine)
    if has_gone_down(probe.name, probe.variant, observations) and not again:
        why_not = why_not or "the machine crashed during it; use --again to try it anyway"
    return Planned(
        probe=probe,
        tries=tries,
        seconds=seconds,
        about=about + FRESH_START,
        why_not=why_not,
    )


def _lacking(probe: Probe, machine: Machine) -> str:
    """Return what is missing; the payload sees GPUs of other vendors and behind WSL2."""
    unseen = machine.system.wsl or (machine.torch is not None and machine.torch.build == "cuda")
    there = len(trainable(machine))
    if machine.torch is not None and machine.torch.build == "cpu":
        there = 0
    if unseen or there >= probe.gpus:
        return ""
    return plural(there, "GPU") if there else "no GPU that torch can use"
