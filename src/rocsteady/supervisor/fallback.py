"""The other ways of the plan that a run follows: when it falls to the next one.

It does where remedies are used up, and where it starts again anyway and only another way is in
time. Which strategies may be run at all is asked of the course.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rocsteady.journal.values import FALLBACK, RunStory
from rocsteady.plan import Basis, Plan, Way
from rocsteady.remedies.ladder import Step
from rocsteady.vocabulary import Strategy, Value

CPU = "cpu"  # as a device
NO_WAY_HELPS = ("script", "disk", "network")  # whose failures are the same on every way


class FallTo(Value, frozen=True, kw_only=True):
    """A way of the plan that a run may fall to: the same command."""

    number: int  # as it is typed, `run --plan 2`
    title: str
    strategy: Strategy
    rate: float | None = None  # steps a second, as its trial had it

    @property
    def decision(self) -> str:
        """As the journal names that it was taken."""
        return f"{FALLBACK}{self.number}"


class Ways:
    """The ways that are left, best first."""

    def __init__(self, ways: tuple[FallTo, ...], may: Callable[[Strategy], bool]) -> None:
        self.left = ways
        self._may = may

    def go_on(self, story: RunStory) -> Strategy | None:
        """Leave out those that a run has taken. Return the last, if no attempt was made on it."""
        taken = {decision.what: decision.attempt for decision in story.decisions}
        last = story.attempts[-1].number if story.attempts else None
        waiting = [way.strategy for way in self.left if taken.get(way.decision, 0) == last]
        self.left = tuple(way for way in self.left if way.decision not in taken)
        return waiting[-1] if waiting else None

    def fallen(self, step: Step, *, whose: str, blamed: bool) -> Step | None:
        """Fall to the next way where the ladder ends. ``blamed``: this way itself is the cause."""
        if step.strategy is not None:
            return None
        if not blamed and (step.person is not None or whose in NO_WAY_HELPS):
            return None
        why = "This option does not work" if blamed else "No remedies are left"
        for way in self._open():
            words = f"{why}; falling back to option {way.number} of the plan: {way.title}."
            return Step(strategy=way.strategy, remedy=way.decision, why=words)
        return None

    def hurried(self, step: Step, needs: float | None) -> Step | None:
        """Take a way that makes the steps a second that it needs, where it starts again anyway."""
        if step.strategy is None or needs is None:
            return None
        for way in self._open():
            if way.rate is not None and way.rate >= needs:
                words = (
                    "At this pace it is past the deadline; taking way"
                    f" {way.number} of the plan, which is in time by its trial: {way.title}."
                )
                return Step(strategy=way.strategy, remedy=way.decision, why=words)
        return None

    def take(self, step: Step) -> bool:
        """Leave a way out that is taken; tell whether the step is one."""
        self.left = tuple(way for way in self.left if way.decision != step.remedy)
        return step.remedy.startswith(FALLBACK)

    def _open(self) -> Iterable[FallTo]:
        return (way for way in self.left if self._may(way.strategy))


def ways_after(plan: Plan, number: int) -> tuple[FallTo, ...]:
    """Return the ways after the one that is taken, of those that ran here with its command.

    Another variant is another model, bf16 has other numbers, and what only an estimate speaks for
    cannot be run here.
    """
    taken = next((way for way in plan.ways if way.number == number), None)
    return tuple(
        FallTo(
            number=way.number,
            title=way.title,
            strategy=way.strategy,
            rate=way.pace.rate if way.pace else None,
        )
        for way in plan.ways
        if way.number > number and way.basis is Basis.TRIAL
        if taken is not None and _is_same_job(way, taken)
    )


def _is_same_job(way: Way, taken: Way) -> bool:
    """Tell whether it trains the same model, with the same numbers or with the script's own."""
    same_model = (way.variant, way.command) == (taken.variant, taken.command)
    numbers = way.strategy.precision, way.strategy.autocast
    own = None, None
    return same_model and numbers in (own, (taken.strategy.precision, taken.strategy.autocast))


def is_as_deadly(strategy: Strategy, deadly: Strategy) -> bool:
    """Tell whether a strategy is still the thing that took the machine down.

    A GPU that takes the machine down is not trusted with another loader or variable either: only
    what keeps the run off it is another thing.
    """
    return CPU not in (deadly.device, strategy.device)
