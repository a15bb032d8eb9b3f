"""The search for a cause: which operation fails, whether it fails alone, and what cures it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from importlib import resources
from pathlib import Path

import msgspec
from rocsteady_train.untrusted_file import read_regular

from rocsteady.failures.remedy import load_remedies
from rocsteady.failures.situation import Refused
from rocsteady.model import ProbeOutcome, Strategy, Value
from rocsteady.probe.builds import is_build
from rocsteady.probe.experiment import (
    BAD,
    PAST,
    WRONG_NUMBERS,
    Experiment,
    ReproductionTries,
    ScriptTries,
    Setup,
    Try,
)
from rocsteady.probe.recorded_operations import ComparedNumbers, Operation
from rocsteady.probe.values import VERBS
from rocsteady.run.recovery.machine import RunMachine
from rocsteady.system.bounded_call import AnswerKind, ask

REPRODUCING, ALONE, OF_SCRIPT = 3, 5, 3  # tries
ENOUGH = 2  # tries that fail under a cure of what always fails
LINES, SCRIPT_BYTES = 40, 64 * 1024  # of a reproduction, at most
WRITTEN_WITHIN = timedelta(seconds=180)
NUMBERS = {"first": 2, "every": 50}  # steps in which each operation is compared
# The kinds of failure whose workarounds are tried, by what came of it and by the operator.
KINDS = {
    ProbeOutcome.HANG: ("hang-in-sync", "hang-in-backward"),
    ProbeOutcome.UNKILLABLE: ("hang-in-sync", "hang-in-backward"),
    ProbeOutcome.CRASH: ("segfault", "abort", "memory-access-fault", "gpu-launch-failure"),
    ProbeOutcome.EXCEPTION: ("gpu-launch-failure", "blas-error", "hip-invalid-value"),
    ProbeOutcome.WRONG: ("nan-loss",),
    ProbeOutcome.NO_MEMORY: ("oom-device", "oom-fragmentation"),
}
KINDS_BY_OPERATOR = {
    "attention": ("hang-in-attention",),
    "convolution": ("hang-in-kernel-search", "miopen-failure"),
    "batch_norm": ("miopen-failure",),
    "rnn": ("miopen-failure",),
    "copy": ("hang-in-copy",),
    "mm": ("blas-error", "blas-not-supported"),
}
SETTINGS = ("attention", "miopen", "precision", "compile")  # that a cure may change


class Reproduction(Value, frozen=True, kw_only=True):
    """A script that makes the one call; it is called one only if ``is_proven``."""

    text: str
    values: str = ""  # the file with the inputs, where random ones do not do
    alone: Experiment
    control: Try  # the same call on the processor in float64

    @property
    def is_proven(self) -> bool:
        short = len(self.text.splitlines()) <= LINES
        return short and self.alone.failed > 0 and self.control.outcome is ProbeOutcome.OK


class Cure(Value, frozen=True, kw_only=True):
    experiment: Experiment
    remedy: str = ""  # its name, if it is a workaround
    alone: bool = False  # it was tried on the reproduction

    @property
    def holds(self) -> bool:
        return self.experiment.worked > 0 and self.experiment.failed == 0


class Cause(Value, frozen=True, kw_only=True):
    """What was found; the value behind the screen, ``--json`` and the report."""

    version: int = 1
    command: tuple[str, ...]
    run: str = ""  # that failed; "": the command was typed
    reproducing: Experiment
    operation: Operation | None = None
    how: str = ""
    numbers: ComparedNumbers | None = None
    reproduction: Reproduction | None = None
    not_reproduced: str = ""  # why there is no reproduction
    cures: tuple[Cure, ...] = ()
    stopped: str = ""  # why not all was tried
    changed: tuple[str, ...] | None = ()  # files of the user's folder
    software: str = ""
    seconds: float = 0.0
    staged: bool = False  # the fault was put there for a rehearsal

    @property
    def cure(self) -> Cure | None:
        """The first that held in every try."""
        return next((each for each in self.cures if each.holds), None)


class Search:
    def __init__(
        self,
        tries: ScriptTries,
        machine: RunMachine,
        *,
        python: str,
        numbers: bool,
        say: Callable[[str], None],
    ) -> None:
        self._tries, self._machine, self._python = tries, machine, python
        self._numbers = NUMBERS if numbers else None
        self._say = say
        self._timeout = ""

    @property
    def _stopped(self) -> str:
        return self._tries.guard.stopped or self._timeout

    def find(self, setups: Sequence[Setup], command: tuple[str, ...], run: str = "") -> Cause:
        reproducing, operation = self._reproduced()
        first = next((each for each in reproducing.tries if each.outcome in BAD), None)
        self._tries.guard.keep(reproducing, "script", operation.name if operation else "")
        cause = Cause(
            command=command,
            run=run,
            reproducing=reproducing,
            operation=operation,
            how=first.how if first else "",
            numbers=next((each.numbers for each in reproducing.tries if each.numbers), None),
        )
        if first is None or operation is None:
            return msgspec.structs.replace(cause, stopped=self._stopped)
        self._say(f"operation: {operation.name}")
        reproduction, why = self._alone(first.outcome)
        cause = msgspec.structs.replace(cause, reproduction=reproduction, not_reproduced=why)
        cures = tuple(self._cured(setups, operation, first, reproduction))
        return msgspec.structs.replace(cause, cures=cures, stopped=self._stopped)

    def _reproduced(self) -> tuple[Experiment, Operation | None]:
        """Let it fail again; from the second time on the inputs of the operation are kept."""
        found: list[Try] = []
        key, past = "", self._tries.limits.last_step
        past = past + PAST if past is not None else None
        while len(found) < REPRODUCING and (not found or self._tries.left > found[-1].seconds):
            self._say(f"try {len(found) + 1} of {REPRODUCING}: the script, kernels serialized")
            one = self._tries.attempt(keep=key, numbers=self._numbers, past=past)
            found.append(one)
            if one.outcome in BAD and one.operation is not None:
                key = one.operation.key
                past = one.step + PAST
            elif one.outcome in BAD and one.operation is None:
                break  # the script's own error, or a place that no operation belongs to
            if self._stopped or one.outcome is ProbeOutcome.NOT_RUN:
                break
        if len(found) < REPRODUCING and self._tries.left <= found[-1].seconds:
            self._timeout = "out of time (--within)"
        named = [each.operation for each in found if each.operation is not None]
        keys = [each.key for each in named]
        operation = max(named, key=lambda each: keys.count(each.key)) if named else None
        return Experiment(tries=tuple(found)), operation

    @property
    def _inputs(self) -> Path:
        return self._tries.kept / "inputs.pt"

    def _alone(self, outcome: ProbeOutcome) -> tuple[Reproduction | None, str]:
        """Make a script of the one call, with random inputs or else with its own."""
        if not self._inputs.exists():
            return None, "it failed only once, so its inputs are not known"
        runner = self._runner()
        why = ""
        for values in ("random", "values"):
            script = self._tries.kept / "repro.py"
            if problem := self._write(script, values, VERBS[outcome]):
                why = f"no script could be made of it: {problem}"
                continue
            self._say(f"the operation alone, {values if values == 'random' else 'its own'} inputs")
            first = runner.attempt(script)
            if first.outcome is ProbeOutcome.NOT_RUN:
                why = "the script could not be started"
                continue
            if first.outcome is not outcome:
                why = "the operation works alone"
                continue
            alone = Experiment(tries=(first, *self._again(runner, script)))
            control = runner.attempt(script, Setup(), "exact")
            made = Reproduction(
                text=read_regular(script, SCRIPT_BYTES, follow=False).decode(),
                values=str(self._inputs) if values == "values" else "",
                alone=alone,
                control=control,
            )
            if made.is_proven:
                return made, ""
            why = "the same call fails on the processor in float64 too"
        return None, why

    def _again(self, runner: ReproductionTries, script: Path) -> Iterator[Try]:
        for _ in range(ALONE - 1):
            one = runner.attempt(script)
            yield one
            if self._stopped or self._tries.left <= one.seconds:
                return

    def _runner(self) -> ReproductionTries:
        return ReproductionTries(
            self._python, self._tries.kept, self._tries.guard, self._tries.limits, os.environ
        )

    def _write(self, script: Path, values: str, verb: str) -> str:
        """Have the user's torch write the script; return why it cannot."""
        program = resources.files("rocsteady_train.inside.payloads") / "reproduction.py"
        answer = ask(
            [
                self._python,
                str(program),
                str(self._inputs),
                str(script),
                values,
                verb,
                str(WRONG_NUMBERS),
            ],
            within=WRITTEN_WITHIN,
            environment=os.environ,
            folder=str(script.parent),
            complaints=True,
        )
        if answer.outcome is AnswerKind.ANSWERED and answer.exit_code == 0:
            return ""
        lines = answer.text.strip().splitlines()
        return lines[-1] if lines else answer.outcome.value

    def _cured(
        self,
        asked: Sequence[Setup],
        operation: Operation,
        first: Try,
        reproduction: Reproduction | None,
    ) -> Iterator[Cure]:
        """Try what may help, one at a time; what the user named first."""
        known = ((setup, "") for setup in asked)
        for setup, remedy in (*known, *self._fitting(operation, first)):
            if self._stopped:
                return
            if self._tries.left <= first.seconds:
                self._timeout = "out of time (--within)"
                return
            alone = reproduction is not None and _reaches(setup)
            self._say(f"trying {setup.name}{'' if alone else ', on the script'}")
            found = self._tried(setup, first, reproduction if alone else None)
            work = "operation" if alone else "script"
            self._tries.guard.keep(found, work, operation.name)
            yield Cure(experiment=found, remedy=remedy, alone=alone)

    def _tried(self, setup: Setup, first: Try, reproduction: Reproduction | None) -> Experiment:
        runner, script = self._runner(), self._tries.kept / "repro.py"
        found: list[Try] = []
        for _ in range(ALONE if reproduction else OF_SCRIPT):
            if reproduction is not None:
                one = runner.attempt(script, setup)
            else:
                past = first.step + PAST
                one = self._tries.attempt(setup, numbers=self._numbers, past=past)
            found.append(one)
            failed = sum(each.outcome in BAD for each in found)
            done = self._stopped or failed >= ENOUGH or one.outcome is ProbeOutcome.NOT_RUN
            if done or self._tries.left <= one.seconds:
                break
        return Experiment(setup=setup, tries=tuple(found))

    def _fitting(self, operation: Operation, first: Try) -> Iterator[tuple[Setup, str]]:
        """Yield the workarounds that are meant for this kind, and the processor for this call."""
        kinds = {first.failure, *KINDS[first.outcome]}
        for part, more in KINDS_BY_OPERATOR.items():
            kinds.update(more if part in operation.name else ())
        of_attention = "attention" in operation.name
        halves = any("float16" in each for each in operation.tensors)
        for name, remedy in load_remedies().items():
            known = set(remedy.setting) <= set(SETTINGS) and (remedy.set or remedy.setting)
            if not known or not any(kind in remedy.answers for kind in kinds):
                continue
            if "attention" in remedy.setting and not of_attention:
                continue
            if "precision" in remedy.setting and not halves:
                continue
            strategy = self._machine.with_remedies((name,))
            if not isinstance(strategy, Refused) and strategy != Strategy():
                yield Setup(name=name, strategy=strategy), name
        if operation.device != "cpu":
            yield Setup(name=f"{operation.name} on the CPU", on_cpu=operation.name), ""


def _reaches(setup: Setup) -> bool:
    """Whether it can change anything of a single call: variables and another build can."""
    settings = msgspec.structs.replace(setup.strategy, variables={})
    return settings == Strategy() and not setup.on_cpu


def requested(texts: Iterable[str]) -> tuple[Setup, ...]:
    """Read what a person asked for: ``torch==2.9.1``, ``NAME=VALUE``, or ``NAME=`` to unset it."""
    found = []
    for text in texts:
        if is_build(text):
            found.append(Setup(name=text, build=text))
            continue
        name, equals, value = text.partition("=")
        if not (equals and name.isidentifier()):
            raise ValueError(f"{text!r}: write it as NAME=VALUE, or torch==VERSION")
        found.append(Setup(name=text, strategy=Strategy(variables={name: value or None})))
    return tuple(found)
