"""How often training fails here, from the runs that the journal has."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from rocsteady import goodput
from rocsteady.journal.values import RunLine

PRIOR = 4 * 3600.0  # seconds between failures, as long as nothing is known
LATEST = 50  # runs that count


def between_failures(lines: Iterable[RunLine], *, but: int) -> float:
    """Return the seconds between two failures.

    Runs that have ended count, each attempt after the first as a failure. Not the run ``but``: its
    own failures are counted by the training, which has them in its checkpoint.
    """
    ended = (line for line in lines if line.run.ended is not None and line.run.id != but)
    seconds, failures = 0.0, 0
    for line in islice(ended, LATEST):
        seconds += max(0.0, (line.run.ended or 0.0) - line.run.started)
        failures += max(0, line.attempts - 1)
    return goodput.between_failures(seconds, failures, prior=PRIOR)
