"""What a plan is made from: the machine, what is wrong with it, and what was seen here before."""

from __future__ import annotations

from rocsteady.doctor.knowledge.failures import load_failures
from rocsteady.doctor.knowledge.gpu_rental import CardSpeed
from rocsteady.doctor.knowledge.harmful_variables import Harmful
from rocsteady.doctor.values import ComputeDevice, Finding
from rocsteady.model import Strategy, Value
from rocsteady.plan.completion import FailureHistory
from rocsteady.store.values import RunStory


class Circumstances(Value, frozen=True, kw_only=True):
    """What is known before anything is tried."""

    os: str  # linux, windows
    wsl: bool = False
    gpus: int = 0  # that a run would see
    gfx: tuple[str, ...] = ()
    card: CardSpeed | None = None
    trains_on: ComputeDevice = ComputeDevice.UNKNOWN
    cores: int = 1
    software: str = ""
    findings: tuple[Finding, ...] = ()
    deadly: tuple[Strategy, ...] = ()  # with which this script took the machine down
    remedied: tuple[tuple[str, Strategy], ...] = ()  # by what helped here, or probes speak for
    harmful: tuple[Harmful, ...] = ()  # variables that are set and known to harm
    histories: tuple[tuple[Strategy, FailureHistory], ...] = ()  # a strategy occurs once

    def history(self, strategy: Strategy) -> FailureHistory:
        """Return what was seen of a strategy here."""
        return next((seen for each, seen in self.histories if each == strategy), FailureHistory())


def histories(stories: tuple[RunStory, ...]) -> tuple[tuple[Strategy, FailureHistory], ...]:
    """Count what runs of a script have shown, by strategy.

    What a person must mend and has, as an error in the script, says nothing of what is to come.
    """
    strategies: list[Strategy] = []
    found: list[FailureHistory] = []
    for story in stories:
        failed = {row.attempt: row.failure.kind for row in story.failures}
        for attempt in story.attempts:
            if attempt.ended is None:
                continue
            if attempt.strategy not in strategies:
                strategies.append(attempt.strategy)
                found.append(FailureHistory())
            number = strategies.index(attempt.strategy)
            before = found[number]
            kind = failed.get(attempt.number, "")
            kind = "" if _is_for_a_person(kind) else kind
            steps = max(0, (attempt.last_step or 0) - (attempt.first_step or 0))
            found[number] = FailureHistory(
                failures=before.failures + bool(kind),
                seconds=before.seconds + max(0.0, attempt.ended - attempt.started),
                steps=before.steps + steps,
                kinds=(*before.kinds, kind) if kind else before.kinds,
            )
    return tuple(zip(strategies, found, strict=True))


def _is_for_a_person(kind: str) -> bool:
    known = load_failures().kinds.get(kind)
    return known is not None and known.fix is not None
