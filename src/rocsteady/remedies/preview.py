"""What would be tried if every attempt failed in the same way: the whole ladder, rung by rung."""

from __future__ import annotations

import msgspec

from rocsteady.remedies.ladder import Proposal, climb
from rocsteady.remedies.situation import FailedAttempt, Situation


def preview(situation: Situation) -> tuple[Proposal, ...]:
    """Climb until it ends; the last step is the end."""
    steps = [climb(situation)]
    while (strategy := steps[-1].strategy) is not None:
        attempt = FailedAttempt(
            strategy=strategy,
            remedy=steps[-1].remedy,
            failure=situation.failure.fingerprint,
            steps=situation.tried[-1].steps,
        )
        situation = msgspec.structs.replace(
            situation, strategy=strategy, tried=(*situation.tried, attempt)
        )
        steps.append(climb(situation))
    return tuple(steps)
