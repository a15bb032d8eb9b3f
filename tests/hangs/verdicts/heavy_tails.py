"""Long runs with heavy-tailed step times and pauses of many kinds, each ended by a hang.

Steps are drawn one by one. Ticks are made every 2 s while steps are short, since nothing can change
in between, and 5 a second in every stay that is longer.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from rocsteady.hangs.values import ProcessSeen, Wait
from rocsteady.model import RunState
from tests.hangs.verdicts.simulate import (
    TRAINER,
    WORKER,
    Quiet,
    Simulation,
    Tree,
    fetching,
    openmp,
    process,
    thread,
)

STEP = 0.02
SPARSE = 2.0  # seconds between ticks while steps are short
PAUSE_EVERY = 700  # steps, on average
HANG_SECONDS = 1800.0  # longer is counted as missed


def trainer(wait: Wait, line: float = 40, **fields: object) -> ProcessSeen:
    main = thread(TRAINER, wait, f"main (/home/u/train.py:{int(line)})", **fields)
    return process(TRAINER, main, *openmp(TRAINER))


def worker(wait: Wait, line: float = 9, **fields: object) -> ProcessSeen:
    return process(WORKER, thread(WORKER, wait, f"load (/home/u/data.py:{int(line)})", **fields))


def loading(one: ProcessSeen) -> tuple[ProcessSeen, ...]:
    return process(TRAINER, fetching(), *openmp(TRAINER)), one


def native_work(now: float) -> tuple[ProcessSeen, ...]:
    return (trainer(Wait.NOTHING, native=("sgemm_kernel",), cpu=now),)


def device_wait(now: float) -> tuple[ProcessSeen, ...]:
    return (trainer(Wait.NOTHING, native=("hsa_signal_wait_scacquire",), cpu=now),)


def writing(now: float) -> tuple[ProcessSeen, ...]:
    main = thread(TRAINER, Wait.DISK, "save (/home/u/train.py:70)")
    return (process(TRAINER, main, *openmp(TRAINER), written_bytes=int(now * 1e7)),)


def compiling(now: float) -> tuple[ProcessSeen, ...]:
    native = (f"llvm::pass{int(now * 3) % 50}", "hiprtcCompileProgram")
    return (trainer(Wait.NOTHING, native=native, cpu=now),)


# Healthy: what is seen, its phase, and the median and spread of how long it lasts.
PAUSES: Mapping[str, tuple[Tree, str, float, float]] = {
    "validation": (lambda now: (trainer(Wait.NOTHING, now % 40),), "evaluate", 20, 1.0),
    "metric": (lambda now: (trainer(Wait.NOTHING, now % 40),), "", 5, 1.0),
    "checkpoint": (writing, "checkpoint", 8, 1.0),
    "recompile": (compiling, "", 20, 1.0),
    "slow disk": (lambda _: loading(worker(Wait.DISK)), "data", 4, 1.3),
    "silent network": (lambda _: loading(worker(Wait.WORLD)), "data", 4, 1.3),
    "back-off": (lambda _: loading(worker(Wait.SLEEP)), "data", 4, 1.3),
    "decoding": (lambda now: loading(worker(Wait.NOTHING, now % 30, cpu=now)), "data", 4, 1.3),
}
# Hung: what is seen, and by when it should be said.
HANGS: Mapping[str, tuple[Tree, str]] = {
    "lock": (lambda _: (trainer(Wait.LOCK),), ""),
    "worker at a semaphore": (lambda _: loading(worker(Wait.LOCK)), "data"),
    "device wait": (device_wait, ""),
}


@dataclass
class Tally:
    """What came of many runs."""

    steps: int = 0
    seconds: float = 0.0
    pauses: int = 0
    longest: float = 0.0
    false: list[str] = field(default_factory=list)
    missed: int = 0
    delays: dict[str, list[float]] = field(default_factory=dict)


def run(seed: int, steps: int, tally: Tally, *, devices: bool = False) -> None:
    """One run of so many steps, with a hang at its end; ``devices`` waits on a GPU in each step."""
    chance = random.Random(seed)  # noqa: S311 - a simulation
    simulation = Simulation()
    began = simulation.now
    seen = device_wait if devices else native_work
    for seconds in _step_times(chance, steps, pareto=bool(seed % 2)):
        _step(simulation, seconds, seen)
        if chance.random() < 1 / PAUSE_EVERY:
            _pause(simulation, chance, tally)
    tally.steps += steps
    tally.longest = max(tally.longest, simulation.pages[0].longest["compute"])
    tally.seconds += simulation.now - began
    tally.false += [
        f"seed {seed}: {said.verdict.why}"
        for said in simulation.changes()
        if said.condition is RunState.HUNG
    ]
    _hang(simulation, chance, tally)


def _step_times(chance: random.Random, steps: int, *, pareto: bool) -> Iterator[float]:
    for _ in range(steps):
        if pareto:
            yield STEP * chance.paretovariate(1.5)
        else:
            yield STEP * chance.lognormvariate(0, 1)


def _step(simulation: Simulation, seconds: float, seen: Tree) -> None:
    page = simulation.pages[0]
    began = simulation.now
    if seconds > SPARSE:
        page.phase, page.since = "compute", began
        while simulation.now < began + seconds:
            simulation.now += 0.2
            simulation.tick(Quiet(seconds=0, tree=seen))
    simulation.now = began + seconds
    page.stay("compute", seconds)
    page.stay("data", seconds / 10)
    page.step += 1
    page.beats += 5
    page.phase, page.since, page.last_step = "compute", simulation.now, simulation.now
    if simulation.now - simulation.pulse.at >= SPARSE:
        simulation.tick(None)


def _pause(simulation: Simulation, chance: random.Random, tally: Tally) -> None:
    tree, phase, median, spread = PAUSES[chance.choice(list(PAUSES))]
    seconds = min(median * chance.lognormvariate(0, spread), 1200.0)
    simulation.be_quiet(Quiet(seconds=seconds, tree=tree, phase=phase))
    tally.pauses += 1


def _hang(simulation: Simulation, chance: random.Random, tally: Tally) -> None:
    simulation.tick(None)
    name = chance.choice(list(HANGS))
    tree, phase = HANGS[name]
    began, heard = simulation.now, len(simulation.said)
    if phase:
        simulation.pages[0].phase, simulation.pages[0].since = phase, began
    while simulation.now < began + HANG_SECONDS:
        simulation.now += 0.2
        simulation.tick(Quiet(seconds=0, tree=tree))
        if simulation.said[-1].condition is RunState.HUNG:
            tally.delays.setdefault(name, []).append(simulation.now - began)
            break
    else:
        tally.missed += 1
    del simulation.said[:heard]
