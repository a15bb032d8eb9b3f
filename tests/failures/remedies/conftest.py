"""Situations on recorded machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from rocsteady.doctor.knowledge.failures import Nature
from rocsteady.failures.ladder import choose_remedy
from rocsteady.failures.situation import Situation
from rocsteady.model import Decision, FailedAttempt, Fingerprint, LoaderFacts, Strategy
from tests.values import failure

if TYPE_CHECKING:
    from tests.conftest import Recorded

PLACE = "train.py step"


class Situations:
    """Makes situations: everything that a test does not name is plain."""

    def __init__(self, recorded: Recorded) -> None:
        self.names = recorded.names
        self._recorded = recorded

    def __call__(
        self,
        kind: str,
        on: str = "no-amd-gpu",
        *,
        strategy: Strategy | None = None,
        rank: int | None = None,
        **given: object,
    ) -> Situation:
        """Return where a run stands after its first attempt, which failed at step 100."""
        machine = self._recorded.machine(on)
        fingerprint = Fingerprint(kind=kind, place=PLACE, step=100)
        plan = strategy or Strategy()
        failed = FailedAttempt(strategy=plan, failure=fingerprint, progressed=True, steps=100)
        plain: dict[str, Any] = {
            "failure": failure(kind, fingerprint=fingerprint, rank=rank),
            "nature": Nature.EITHER,
            "strategy": plan,
            "tried": (failed,),
            "machine": machine,
            "variables": {each.name: each.value or "" for each in machine.variables},
            "gpus": len(machine.gpus.gpus),
            "can_resume": True,
            "checkpoints": 2,
        }
        return Situation(**{**plain, **given})

    @staticmethod
    def loader(**told: object) -> LoaderFacts:
        """Return what a process tells of its DataLoaders; plain, where nothing is given."""
        plain: dict[str, Any] = {
            "loaders": 1,
            "workers": 4,
            "context": "fork",
            "pickles": None,
            "main_guarded": True,
        }
        return LoaderFacts(**{**plain, **told})

    def after(
        self,
        situation: Situation,
        choice: Decision,
        kind: str = "",
        *,
        steps: int = 100,
        nature: Nature | None = None,
    ) -> Situation:
        """Return where the run stands when the next attempt has failed too."""
        assert not choice.ends, choice.why
        fingerprint = Fingerprint(kind=kind or situation.failure.kind, place=PLACE, step=steps)
        attempt = FailedAttempt(
            strategy=choice.strategy,
            remedy=choice.remedy,
            failure=fingerprint,
            progressed=steps > max(entry.steps for entry in situation.tried),
            steps=steps,
        )
        return msgspec.structs.replace(
            situation,
            failure=failure(fingerprint.kind, fingerprint=fingerprint),
            nature=nature or situation.nature,
            strategy=choice.strategy,
            tried=(*situation.tried, attempt),
        )

    @staticmethod
    def preview(situation: Situation) -> list[Decision]:
        """Return what is tried if every attempt fails in the same way; the last is the end.

        What is waited for has no such end: then the last is the wait.
        """
        choices = [choose_remedy(situation)]
        while not (choices[-1].ends or (choices[1:] and all(it.waits for it in choices[-2:]))):
            attempt = FailedAttempt(
                strategy=choices[-1].strategy,
                remedy=choices[-1].remedy,
                failure=situation.failure.fingerprint,
                steps=situation.tried[-1].steps,
            )
            situation = msgspec.structs.replace(
                situation, strategy=attempt.strategy, tried=(*situation.tried, attempt)
            )
            choices.append(choose_remedy(situation))
        return choices

    def would_try(self, situation: Situation) -> list[str]:
        """Return the remedies that are tried, one after the other."""
        return [choice.remedy for choice in self.preview(situation)[:-1]]


@pytest.fixture(scope="session")
def situations(recorded: Recorded) -> Situations:
    return Situations(recorded)
