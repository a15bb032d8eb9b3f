"""A run without processes: it is told how attempts end, and decides what comes next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rocsteady.model import Decision, Failure, Fingerprint, Outcome, RunState
from rocsteady.run.options import RunOptions
from rocsteady.run.recovery.decision import Here, decide, first_decision
from rocsteady.run.recovery.history import history_of
from rocsteady.run.recovery.machine import RunMachine
from rocsteady.store.machine_history import Memory
from rocsteady.store.values import (
    AttemptRecord,
    AttemptResult,
    DecisionRecord,
    Event,
    Incident,
    NamedFailure,
)
from tests.values import failure

if TYPE_CHECKING:
    from tests.conftest import Recorded


class Lived:
    def __init__(
        self,
        recorded: Recorded,
        options: RunOptions | None = None,
        memory: Memory | None = None,
        **here: Any,  # noqa: ANN401 - fields of Here
    ) -> None:
        self.options = options or RunOptions()
        self.machine = RunMachine(
            script="s",
            here="m",
            memory=memory,
            knowledge=recorded.knowledge,
            machine=lambda: recorded.machine("no-amd-gpu"),
            variables={},
        )
        self.here = {"can_resume": True, "checkpoints": 1, **here}
        self.events: list[Event] = []
        self.history = history_of((), self.options.strategy)
        self.now = 0.0

    def record(self, event: Event) -> None:
        self.events.append(event)
        self.history.add(event)

    def taken_over(self) -> None:
        """Forget all that is not in the journal."""
        self.history = history_of(self.events, self.options.strategy)

    def begins(self) -> Decision:
        decision = first_decision(self.history, self.options, Here(machine=self.machine, now=0.0))
        self.decided(decision)
        return decision

    def decided(self, decision: Decision) -> None:
        number = self.history.last.number if self.history.last else 0
        self.record(DecisionRecord(run=1, attempt=number, decision=decision, at=self.now))

    def ends(
        self,
        named: Failure | None,
        steps: int | None = 25,
        outcome: Outcome = Outcome.BY_ITSELF,
        *,
        code: int | None = 1,
        place: str = "",
        **result: Any,  # noqa: ANN401 - fields of AttemptResult
    ) -> None:
        """Have an attempt end."""
        number = self.history.last.number + 1 if self.history.last else 1
        hung = place or (named is not None and named.kind.startswith("hang"))
        outcome = Outcome.HUNG if hung else outcome
        usual = {"own_step": steps, "heard": True, "stepped": bool(steps), "seconds": 60.0}
        came_of_it = AttemptResult(**{**usual, "made": steps or 0, **result})
        self.record(
            AttemptRecord(
                run=1,
                number=number,
                strategy=self.history.strategy,
                boot_id="b",
                started=self.now,
                ended=self.now + came_of_it.seconds,
                exit_code=None if hung else code,
                outcome=outcome,
                last_step=steps,
                result=came_of_it,
            )
        )
        self.now += came_of_it.seconds
        if hung:
            self.record(
                Incident(
                    run=1, attempt=number, number=number, verdict=RunState.HUNG, why="",
                    place=place, quiet=1.0, evidence="", at=self.now,
                )
            )  # fmt: skip
        if named is not None:
            self.record(
                NamedFailure(run=1, attempt=number, failure=named, evidence="", at=self.now)
            )

    def decides(self, **here: Any) -> Decision:  # noqa: ANN401 - fields of Here
        known = {**self.here, **here}
        decision = decide(
            self.history, self.options, Here(machine=self.machine, now=self.now, **known)
        )
        self.decided(decision)
        self.now += decision.wait
        return decision

    def fails(
        self,
        kind: str,
        steps: int | None = 25,
        *,
        needs: float | None = None,
        **result: Any,  # noqa: ANN401 - fields of AttemptResult
    ) -> Decision:
        """Have an attempt fail, and decide what comes next."""
        self.ends(failure(kind, fingerprint=Fingerprint(kind=kind, step=steps)), steps, **result)
        return self.decides(needs=needs)
