"""A run against its deadline, in words: when it will be done, and how much time there is."""

from __future__ import annotations

from datetime import tzinfo

from rocsteady.model import RunOutcome
from rocsteady.screens.times import moment
from rocsteady.store.values import Forecast
from rocsteady.wording import duration

JUST = 1.0  # seconds, which nobody would call late


def ahead(
    forecast: Forecast, deadline: float | None, *, now: float, zone: tzinfo | None = None
) -> str:
    """Say when it will be done, and against the deadline, and how sure that is."""
    about = f"finishes about {moment(forecast.at, now=now, zone=zone)}"
    if deadline is None:
        return about
    doubt = ""
    if forecast.at <= deadline < forecast.late:
        doubt = " (may be late)"
    elif forecast.early <= deadline < forecast.at:
        doubt = " (may be on time)"
    due = moment(deadline, now=now, zone=zone)
    return f"{about}, deadline {due}: {spare(forecast.at, deadline)}{doubt}"


def spare(at: float, deadline: float) -> str:
    """Say how much time there is between an end and a deadline."""
    if at <= deadline:
        return f"{duration(deadline - at)} to spare"
    return f"{duration(at - deadline)} late"


def met(ended: float, deadline: float) -> str:
    """Say whether what is done was done in time."""
    if ended > deadline + JUST:
        return f"{duration(ended - deadline)} late"
    return f"{duration(max(0.0, deadline - ended))} before the deadline"


def result(ended: float, outcome: RunOutcome, deadline: float) -> str:
    """Say of a run that ended whether the job is done, and in time."""
    return f"done {met(ended, deadline)}" if outcome is RunOutcome.DONE else "not done"


def until(deadline: float, *, now: float, zone: tzinfo | None = None) -> str:
    """Name a deadline, and how far it is away."""
    due = f"deadline {moment(deadline, now=now, zone=zone)}"
    if deadline < now:
        return f"{due} ({duration(now - deadline)} ago)"
    return f"{due} (in {duration(deadline - now)})"


def remains(left: int, total: int, rate: float | None, deadline: float, *, now: float) -> str:
    """Say of a run that ended what is left, and whether there is time for it."""
    steps = f"{left:,} of {total:,} steps left"
    if rate is None:
        return f"{steps}; {until(deadline, now=now)}"
    work = left / rate
    latest = deadline - work
    takes = f"{steps}, {duration(work)} at this pace; deadline {moment(deadline, now=now)}"
    if latest < now:
        return f"{takes}: too late at this pace"
    return f"{takes}: on time if resumed by {moment(latest, now=now)}"
