"""Values for the tests of the planner."""

from __future__ import annotations

import math

from msgspec.structs import replace

from rocsteady.doctor.knowledge.values import Confidence, Fix, Severity
from rocsteady.doctor.values import Finding
from rocsteady.model import Risk, Strategy
from rocsteady.plan.trials import TrialResult
from rocsteady.plan.values import Basis, Finish, Option, Pace, Plan, Price

HOUR = 3600.0


def pace(rate: float = 2.0, spread: float = 1.1, **slowed_by: float) -> Pace:
    return Pace(
        steps=60,
        seconds=60 / rate,
        rate=rate,
        low=rate / spread,
        high=rate * spread,
        starting=5.0,
        slowed_by=slowed_by,
    )


def tried(
    rate: float | None = 2.0, strategy: Strategy | None = None, **more: object
) -> TrialResult:
    found = None if rate is None else pace(rate)
    settled: dict[str, object] = {"step": 60, "seconds": 30.0, "pace": found, **more}
    return TrialResult(strategy=strategy or Strategy(), **settled)  # type: ignore[arg-type]


def failed(kind: str, strategy: Strategy | None = None, step: int = 7) -> TrialResult:
    return TrialResult(
        strategy=strategy or Strategy(),
        failure=kind,
        title=f"it had {kind}",
        step=step,
        seconds=10.0,
    )


def option(  # noqa: PLR0913 - each is said by name
    hours: float,
    *,
    chance: float | None = None,
    basis: Basis = Basis.TRIAL,
    risk: Risk = Risk.LOW,
    cost: tuple[float, float] | None = None,
    changes: str = "",
    name: str = "gpu",
    strategy: Strategy | None = None,
) -> Option:
    seconds = hours * HOUR
    dollars = math.sqrt(cost[0] * cost[1]) / hours if cost else 0.0  # an hour, of what is likely
    return Option(
        id=name,
        title=name,
        basis=basis,
        risk=risk,
        cost=cost,
        price=Price(dollars=dollars, as_of="2026-11-15", source="") if cost else None,
        changes=changes,
        strategy=strategy or Strategy(),
        finish=Finish(seconds=seconds, early=seconds, late=seconds, in_time=chance),
    )


def plan(*options: Option, **more: object) -> Plan:
    """Return a plan with these options, numbered."""
    numbered = tuple(replace(each, number=number) for number, each in enumerate(options, start=1))
    plain: dict[str, object] = {
        "rocsteady": "0",
        "made": 0.0,
        "command": ("python", "train.py"),
        "folder": "",
        "software": "",
        "total": 7200,
        "left": 7200,
        "deadline": 10 * HOUR,
        "options": numbered,
    }
    return Plan(**{**plain, **more})  # type: ignore[arg-type]


def finding(rule: str, severity: Severity = Severity.BLOCKS) -> Finding:
    return Finding(
        rule=rule,
        severity=severity,
        summary="what it says",
        seen=(),
        fix=Fix(text="mend it"),
        confidence=Confidence.OFFICIAL,
        confirmed_on=(),
        sources=(),
    )
