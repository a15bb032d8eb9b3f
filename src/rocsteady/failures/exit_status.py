"""What the way a process ended tells by itself."""

from __future__ import annotations

import signal as signals
from collections.abc import Iterable

from rocsteady.failures.candidate import Candidate
from rocsteady.failures.symptoms import Symptoms
from rocsteady.knowledge.failures import Signature, Where

SHELL = 128  # what a shell adds to the signal that ended its child
HIGHEST_SIGNAL = 64
CODES = 2**32  # Windows gives codes below this, Python may show them as negative


class Ends:
    """Names ends by signals and exit codes."""

    def __init__(self, signatures: Iterable[Signature]) -> None:
        self._signatures = [it for it in signatures if it.where is Where.EXIT]

    def name(self, symptoms: Symptoms) -> list[Candidate]:
        """Return what the end means; nothing for an ordinary exit code."""
        number, code = _signal(symptoms), symptoms.exit_code
        return [
            _candidate(it, number, code)
            for it in self._signatures
            if number in it.signals or (code is not None and code % CODES in it.codes)
        ]


def has_failed(symptoms: Symptoms) -> bool:
    """Tell whether something else than texts says that the attempt failed."""
    return bool(symptoms.hung or symptoms.signal or symptoms.exit_code or symptoms.raised)


def _signal(symptoms: Symptoms) -> int | None:
    """Return the signal that ended it: as told, as Python says it, or as a shell does."""
    if symptoms.signal:
        return symptoms.signal
    code = symptoms.exit_code or 0
    if -HIGHEST_SIGNAL <= code < 0:
        return -code
    return code - SHELL if SHELL < code <= SHELL + HIGHEST_SIGNAL else None


def signal_name(number: int) -> str:
    """Return a signal as people write it: SIGALRM."""
    try:
        return signals.Signals(number).name
    except ValueError:  # one without a name here
        return f"signal {number}"


def _candidate(signature: Signature, number: int | None, code: int | None) -> Candidate:
    told = f"exit code {code}" if number is None else f"ended by {signal_name(number)}"
    return Candidate(
        kind=signature.failure,
        role=signature.role,
        certainty=signature.certainty,
        at=float("inf"),
        seen=(told,),
        signature=signature.id,
    )
