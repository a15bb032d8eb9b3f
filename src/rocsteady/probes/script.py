"""The user's own script as a probe: so many steps, and then it is ended."""

from __future__ import annotations

from rocsteady.attempts.attempt_end import Outcome
from rocsteady.evidence.heartbeat_pages import read_pages
from rocsteady.journal.values import RunStory
from rocsteady.model import Observation, ProbeOutcome
from rocsteady.supervisor.observer import ObservedRun, Observer

NAME = "script"
NO_MEMORY = "oom"  # what kinds of failure for want of memory begin with


class StepCount(Observer):
    """Ends a run once it has made so many steps."""

    def __init__(self, steps: int) -> None:
        self._steps = steps  # to be made
        self.made = 0

    def ticked(self, run: ObservedRun) -> None:
        """Count the steps of the attempt that is under way."""
        pages = read_pages(run.pages) if run.pages else ()
        self.made = run.steps_before + max((beat.step for beat in pages), default=0)
        if not run.is_over and self.made >= self._steps:
            run.end(f"{self.made} steps completed; the probe ends here.")


def observed(story: RunStory, *, made: int, is_over: bool, at: float) -> Observation:
    """Say what came of it, after so many steps were seen to be made."""
    attempt = story.attempts[-1] if story.attempts else None
    failure = story.failures[-1].failure if story.failures else {}
    kind, title = str(failure.get("kind", "")), str(failure.get("title", ""))
    well = is_over or (attempt is not None and attempt.exit_code == 0 and not story.incidents)
    outcome, why = ProbeOutcome.OK, ""
    if not well:
        outcome, why = _went_wrong(story, kind), title or story.run.outcome
    print_ = failure.get("fingerprint")
    place = str(print_.get("place", "")) if isinstance(print_, dict) else ""
    ended = (attempt.ended if attempt else None) or at
    return Observation(
        probe=NAME,
        outcome=outcome,
        tries=max(made, (attempt.last_step if attempt else 0) or 0),
        seconds=max(0.0, ended - (attempt.started if attempt else at)),
        why=why,
        place="" if well else place,
        failure="" if well else kind,
        at=at,
    )


def _went_wrong(story: RunStory, kind: str) -> ProbeOutcome:
    attempt = story.attempts[-1] if story.attempts else None
    if attempt is None:
        return ProbeOutcome.NOT_RUN
    if attempt.outcome == Outcome.UNKILLABLE.value:
        return ProbeOutcome.UNKILLABLE
    if kind.startswith(NO_MEMORY):
        return ProbeOutcome.NO_MEMORY
    if story.incidents:
        return ProbeOutcome.HANG
    return ProbeOutcome.CRASH if attempt.signal else ProbeOutcome.EXCEPTION
