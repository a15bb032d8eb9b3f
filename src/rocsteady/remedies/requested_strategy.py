"""The strategy that a person asks for by the names of remedies, before anything has failed."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from rocsteady.machine.machine import Machine
from rocsteady.model import Certainty, Failure, Fingerprint, Strategy
from rocsteady.remedies.catalog import RUNGS
from rocsteady.remedies.remedy import Refused
from rocsteady.remedies.situation import DETERMINISTIC, FailedAttempt, Situation

NOTHING = Failure(
    kind="",
    title="",
    words="",
    certainty=Certainty.UNKNOWN,
    fingerprint=Fingerprint(kind=""),
    seen=(),
)


def strategy_of(
    names: Iterable[str], machine: Machine, variables: dict[str, str], *, gpus: int
) -> Strategy | Refused:
    """Apply remedies one after the other; the first that is not right here is refused."""
    strategy = Strategy()
    for name in names:
        situation = Situation(
            failure=NOTHING,
            nature=DETERMINISTIC,
            strategy=strategy,
            tried=(FailedAttempt(strategy=strategy, failure=NOTHING.fingerprint),),
            machine=machine,
            variables=variables,
            gpus=gpus,
        )
        result = RUNGS[name].apply(situation)
        if isinstance(result, Refused):
            return msgspec.structs.replace(result, why=f"{name}: {result.why}")
        strategy = result
    return strategy
