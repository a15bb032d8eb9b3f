"""The user's own script as a probe: so many steps, and then it is ended."""

from __future__ import annotations

import signal

from rocsteady.drills.drill import Rehearsal
from rocsteady.journal.values import RunStory
from rocsteady.vocabulary import Observation, ProbeOutcome

NAME = "script"
NO_MEMORY = "oom"  # what kinds of failure for want of memory begin with
UNKILLABLE = "cannot be killed"


class FewSteps(Rehearsal):
    """Carries out one attempt without faults, over the user's folder and never in it."""

    steps = 50  # to be made
    made = 0

    def _is_behind(self, step: int) -> bool:
        """End it when the steps are made; there is no fault to wait for."""
        self.made = step
        if step >= self.steps:
            self.is_over = True
            self._announcer.say(f"{step} steps are made: the probe ends here.")
            self._wishes.stop = signal.SIGTERM
        return False


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
    if UNKILLABLE in attempt.outcome:
        return ProbeOutcome.UNKILLABLE
    if kind.startswith(NO_MEMORY):
        return ProbeOutcome.NO_MEMORY
    if story.incidents:
        return ProbeOutcome.HANG
    return ProbeOutcome.CRASH if attempt.signal else ProbeOutcome.EXCEPTION
