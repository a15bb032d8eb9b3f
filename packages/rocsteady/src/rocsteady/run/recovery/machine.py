"""What decides besides the history of a run: the machine, and what is remembered of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

from rocsteady.doctor.facts import VisibleGpus, visible_to_a_run
from rocsteady.doctor.knowledge.failures import Component, load_failures
from rocsteady.doctor.knowledge.harmful_variables import harmful_variables
from rocsteady.doctor.knowledge.reader import Knowledge
from rocsteady.doctor.machine.machine import Machine, examined, software_of
from rocsteady.errors import RocsteadyError
from rocsteady.failures.classify import Classifier
from rocsteady.failures.named_workarounds import Workaround, strategy_of
from rocsteady.failures.probe_evidence import supported
from rocsteady.failures.remedy import asked, load_remedies, requested_strategy
from rocsteady.failures.situation import Refused
from rocsteady.failures.symptoms import Symptoms
from rocsteady.hangs.looking.kernel_log import read_kernel_log
from rocsteady.model import Failure, Strategy
from rocsteady.run.attempt.gauges import GPU_MEMORY
from rocsteady.run.attempt.symptoms import KERNEL_WITHIN
from rocsteady.run.context import Services
from rocsteady.run.options import RunOptions
from rocsteady.store.identity import script_fingerprint
from rocsteady.store.machine_history import Memory
from rocsteady.store.values import AttemptRecord, Bucket, Deadly, Helped, Run

FULL = 0.9  # of a GPU's memory
LEAST = 2 << 30  # bytes; a desktop fills what small parts are set aside for processor graphics


class RunMachine:
    def __init__(  # noqa: PLR0913 - all are keyword arguments
        self,
        *,
        script: str,
        here: str,  # the machine, as the journal names it
        memory: Memory | None,
        knowledge: Knowledge,
        machine: Callable[[], Machine],  # examined when it is needed
        variables: dict[str, str],
    ) -> None:
        self.machine, self.variables = machine, variables
        self._script, self._here, self._memory = script, here, memory
        self._knowledge = knowledge
        self.memory_full = False  # nearly, that of a GPU, when the machine went down
        self.deadly = [entry.strategy for entry in memory.deadly(here, script)] if memory else []

    @property
    def gpus(self) -> VisibleGpus:
        return visible_to_a_run(self.machine(), self._knowledge)

    def helped(self) -> tuple[Helped, ...]:
        before = self._memory.what_helped(self._here, self._script) if self._memory else ()
        return tuple(each for each in before if each.remedy in load_remedies())

    def probed(self) -> tuple[str, ...]:
        """Return the remedies that probes of this machine speak for."""
        if self._memory is None:
            return ()
        return supported(self._memory.observations(self._here), software_of(self.machine()))

    def with_remedies(self, names: tuple[str, ...]) -> Strategy | Refused:
        return requested_strategy(names, self.machine(), self.variables, gpus=self.gpus.gpus)

    def named(self, workarounds: tuple[Workaround, ...], options: RunOptions) -> Strategy | Refused:
        """Return the strategy that another host names, as far as it may be used here."""
        if not workarounds:
            return Strategy()
        may = {"allow": options.allowed, "deny": options.deny, "also": options.also}
        return strategy_of(workarounds, asked(self.machine(), self.variables, ranks=2, **may))

    def asked_for(self, names: tuple[str, ...]) -> Strategy:
        found = self.with_remedies(names)
        if isinstance(found, Refused):
            raise RocsteadyError(f"--with {found.why}")
        return found

    def remember(self, remedy: str, answered: str, run: str, at: float) -> None:
        """Keep that a remedy helped this script here."""
        if self._memory is not None:
            self._memory.helped(
                Helped(
                    machine=self._here,
                    script=self._script,
                    failure=answered,
                    remedy=remedy,
                    run=run,
                    at=at,
                )
            )

    def took_down(self, run: Run, attempt: AttemptRecord, folder: Path) -> None:
        """Remember that an attempt took the machine down, at this script or at another one."""
        strategy = attempt.strategy
        script = script_fingerprint(run.command, str(folder))
        if script == self._script and strategy not in self.deadly:
            self.deadly.append(strategy)
        if self._memory is not None:
            self._memory.killed(
                Deadly(
                    machine=self._here,
                    script=script,
                    strategy=strategy,
                    command=" ".join(run.command)[:200],
                    at=attempt.started,
                )
            )

    def saw(self, progress: Iterable[Bucket]) -> None:
        """Remember whether a GPU's memory was nearly full in what was measured last."""
        last = {name: seen.most for each in progress for name, seen in each.gauges.items()}
        for number, gpu in enumerate(self.machine().gpus.gpus):
            used, size = last.get(f"GPU {number} {GPU_MEMORY}", 0.0), gpu.vram_bytes or 0
            self.memory_full |= size >= LEAST and used >= FULL * size


def run_machine(services: Services, command: tuple[str, ...], folder: Path) -> RunMachine:
    """Return this machine; it is examined when that is first needed."""
    known = services.knowledge
    names = {*known.variables, *(variable.name for variable in harmful_variables())}
    return RunMachine(
        script=script_fingerprint(command, str(folder)),
        here=services.journal.here.machine,
        memory=services.memory,
        knowledge=known,
        machine=cache(lambda: examined(known, command)),
        variables={name: os.environ[name] for name in names if name in os.environ},
    )


def is_of_gpu(failure: Failure) -> bool:
    return load_failures().kinds[failure.kind].component is Component.DEVICE


def gpu_trouble(since: float) -> str:
    """Return what the kernel has said of a GPU since a moment; "" if nothing."""
    lines = read_kernel_log(since, within=KERNEL_WITHIN).lines
    failure = Classifier(load_failures()).name(Symptoms(kernel=lines)) if lines else None
    if failure is None or not is_of_gpu(failure):
        return ""
    return failure.seen[0] if failure.seen else failure.title
