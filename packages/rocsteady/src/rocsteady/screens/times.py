"""Moments in words: "Sun 30 Nov 18:00", "today 14:20", "Mar 2027".

The words are English whatever the locale is. A zone of None is that of this machine.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo

from rocsteady.model import RunOutcome
from rocsteady.store.values import Forecast
from rocsteady.wording import DAY, MINUTE, YEAR, duration, rough_duration

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
NEAR = 180 * DAY  # from now; a day so near needs no year
ENDLESS = 99 * YEAR  # from now; nobody waits for it
NEVER = "never"
VAGUE = 45 * DAY  # from here on only the month is named
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def moment(at: float, *, now: float, zone: tzinfo | None = None) -> str:
    """Name a moment: Sun 30 Nov 18:00; with the year where it is far from now."""
    if not at - now < ENDLESS:  # nor is what is no number
        return NEVER
    local = _local(at, zone)
    return f"{DAYS[local.weekday()]} {_day(local, at - now)} {local:%H:%M}"


def stamp(at: float | None) -> str:
    """Write a moment in full, in UTC; a dash for none, and for one that no calendar has."""
    try:
        return "-" if at is None else f"{EPOCH + timedelta(seconds=at):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, ValueError):
        return "-"


def full_moment(at: float, *, now: float, zone: tzinfo | None = None, spread: float = 0.0) -> str:
    """Name a moment for a page that is kept or sent: Sun 30 Nov 2026 18:00 UTC+01:00.

    What is known less exactly than to half a day has no time of the day.
    """
    if not at - now < ENDLESS:
        return NEVER
    local = _local(at, zone)
    if spread >= VAGUE:
        return f"{MONTHS[local.month - 1]} {local.year}"
    day = f"{DAYS[local.weekday()]} {local.day} {MONTHS[local.month - 1]} {local.year}"
    if spread >= DAY / 2:
        return day
    offset = f"{local:%z}"
    east = f"{offset[:3]}:{offset[3:5]}" if local.utcoffset() else ""
    return f"{day} {local:%H:%M} UTC{east}"


def moment_within(at: float, *, spread: float, now: float, zone: tzinfo | None = None) -> str:
    """Name a moment no closer than it is known: today 14:20, 25 Nov 02:00, 25 Nov, Mar 2027."""
    ahead = at - now
    if not ahead < ENDLESS:
        return NEVER
    if 0 <= ahead < 2 * MINUTE:
        return f"in {rough_duration(ahead)}"
    local = _local(at, zone)
    coarse = max(spread, ahead / 50)
    if coarse >= VAGUE:
        return f"{MONTHS[local.month - 1]} {local.year}"
    if coarse >= DAY / 2:
        return _day(local, ahead)
    today = local.date() == _local(now, zone).date()
    return f"{'today' if today else _day(local, ahead)} {local:%H:%M}"


def _day(local: datetime, ahead: float) -> str:
    year = f" {local.year}" if abs(ahead) > NEAR else ""
    return f"{local.day} {MONTHS[local.month - 1]}{year}"


def _local(at: float, zone: tzinfo | None) -> datetime:
    return (EPOCH + timedelta(seconds=at)).astimezone(zone)


JUST = 1.0  # seconds, which nobody would call late


def ahead(
    forecast: Forecast, deadline: float | None, *, now: float, zone: tzinfo | None = None
) -> str:
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
    if at <= deadline:
        return f"{duration(deadline - at)} to spare"
    return f"{duration(at - deadline)} late"


def met(ended: float, deadline: float) -> str:
    if ended > deadline + JUST:
        return f"{duration(ended - deadline)} late"
    return f"{duration(max(0.0, deadline - ended))} before the deadline"


def result(ended: float, outcome: RunOutcome, deadline: float) -> str:
    return f"done {met(ended, deadline)}" if outcome is RunOutcome.DONE else "not done"


def until(deadline: float, *, now: float, zone: tzinfo | None = None) -> str:
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
