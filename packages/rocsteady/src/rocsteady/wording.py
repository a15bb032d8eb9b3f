"""One format each for durations, sizes, plurals and moments: "3 min 10 s", "today 14:20".

The words are English whatever the locale is. A zone of None is that of this machine.
"""

from __future__ import annotations

import math
import signal
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path

from rocsteady.model import Forecast, RunOutcome

MINUTE, HOUR, DAY, YEAR = 60, 3600, 86400, 31557600  # seconds
CENT = 0.01  # of a dollar
TEN = 9.995  # dollars; from here on cents say little
SHORT_DURATION = 10  # seconds; below it, a tenth matters
UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def duration(seconds: float) -> str:
    """Format a duration in up to two units: 40 ms, 0.9 s, 45 s, 3 min 10 s, 2 h 5 min, 15 d 6 h."""
    if not math.isfinite(seconds):
        return "an unknown time"
    if 0 < seconds < 0.1:  # noqa: PLR2004 - a tenth of a second would say nothing
        return f"{seconds * 1000:.0f} ms"
    if round(seconds, 1) < SHORT_DURATION:
        return f"{seconds:.1f} s"
    if seconds >= 100 * DAY:
        return rough_duration(seconds)
    for unit, name, part, parts in (
        (DAY, "d", HOUR, "h"),
        (HOUR, "h", MINUTE, "min"),
        (MINUTE, "min", 1, "s"),
    ):
        whole, rest = divmod(round(seconds / part) * part, unit)
        if whole * unit + rest >= (unit if unit == HOUR else 2 * unit):
            return f"{whole} {name} {rest // part} {parts}" if rest else f"{whole} {name}"
    return f"{seconds:.0f} s"


def rough_duration(seconds: float) -> str:
    """Format a duration in one unit: 8 s, 45 min, 36 h, 15 d, 3 years."""
    for unit, name in ((YEAR, "years"), (DAY, "d"), (HOUR, "h"), (MINUTE, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:,.0f} {name}"
    return f"{seconds:.0f} s"


def size(amount: float, *, digits: int = 1) -> str:
    """Format a number of bytes: 512 B, 1.5 MiB, 20 GiB."""
    unit = 0
    while round(amount, digits) >= 1024 and unit < len(UNITS) - 1:  # noqa: PLR2004 - the next unit
        amount /= 1024
        unit += 1
    return f"{amount:,.{digits}f}".removesuffix(".0") + f" {UNITS[unit]}"


def money(dollars: float) -> str:
    """Format an amount: "$25", "$0.40", "less than $0.01"."""
    if 0 < dollars < CENT:
        return "less than $0.01"
    return f"${dollars:,.0f}" if dollars >= TEN or dollars == int(dollars) else f"${dollars:.2f}"


def inside_a_sentence(text: str) -> str:
    """Begin a text with a small letter, unless its first word is a name such as GPU or PyTorch."""
    first = text.partition(" ")[0]
    return text if first[1:] != first[1:].lower() else text[:1].lower() + text[1:]


def capitalized(text: str) -> str:
    """Begin with a capital letter, unless with the name of an exception: torch.OutOfMemoryError."""
    return text if "." in text.partition(" ")[0].rstrip(".") else f"{text[:1].upper()}{text[1:]}"


def near(path: Path) -> str:
    """Write a path as short as it can be typed from here."""
    try:
        return str(path.relative_to(Path.cwd()))
    except (OSError, ValueError):
        return str(path)


def plural(number: int, thing: str, things: str = "") -> str:
    """Count things: "1 step", "2,000 steps"; ``things`` is for an irregular plural."""
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"


def signal_name(number: int) -> str:
    """Write a signal as people do: SIGALRM."""
    try:
        return signal.Signals(number).name
    except ValueError:  # one without a name here
        return f"signal {number}"


DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
NO_YEAR_WITHIN = 180 * DAY  # from now; a day so near needs no year
ENDLESS = 99 * YEAR  # from now; nobody waits for it
NO_MOMENT = "never"
MONTH_ONLY_FROM = 45 * DAY  # from here on only the month is named
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def moment(at: float, *, now: float, zone: tzinfo | None = None, brief: bool = False) -> str:
    """Name a moment: Sun 30 Nov 18:00; with the year where it is far from now.

    ``brief`` is for a screen that is read now: of today, it has the time only.
    """
    if not at - now < ENDLESS:  # nor is what is no number
        return NO_MOMENT
    local = _local(at, zone)
    if brief and local.date() == _local(now, zone).date():
        return f"{local:%H:%M}"
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
        return NO_MOMENT
    local = _local(at, zone)
    if spread >= MONTH_ONLY_FROM:
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
        return NO_MOMENT
    if 0 <= ahead < 2 * MINUTE:
        return f"in {rough_duration(ahead)}"
    local = _local(at, zone)
    coarse = max(spread, ahead / 50)
    if coarse >= MONTH_ONLY_FROM:
        return f"{MONTHS[local.month - 1]} {local.year}"
    if coarse >= DAY / 2:
        return _day(local, ahead)
    today = local.date() == _local(now, zone).date()
    return f"{'today' if today else _day(local, ahead)} {local:%H:%M}"


def _day(local: datetime, ahead: float) -> str:
    year = f" {local.year}" if abs(ahead) > NO_YEAR_WITHIN else ""
    return f"{local.day} {MONTHS[local.month - 1]}{year}"


def _local(at: float, zone: tzinfo | None) -> datetime:
    return (EPOCH + timedelta(seconds=at)).astimezone(zone)


JUST = 1.0  # seconds, which nobody would call late


def ahead(
    forecast: Forecast,
    deadline: float | None,
    *,
    now: float,
    zone: tzinfo | None = None,
    brief: bool = False,
) -> str:
    """Return when a run ends; ``brief`` is for a screen that is read now."""
    about = f"finishes about {moment(forecast.at, now=now, zone=zone)}"
    if brief:
        about = f"ETA {moment(forecast.at, now=now, zone=zone, brief=True)}"
    if deadline is None:
        return about
    doubt = ""
    if forecast.at <= deadline < forecast.late:
        doubt = " (may be late)"
    elif forecast.early <= deadline < forecast.at:
        doubt = " (may be on time)"
    due = moment(deadline, now=now, zone=zone, brief=brief)
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


def until(deadline: float, *, now: float, zone: tzinfo | None = None, brief: bool = False) -> str:
    due = f"deadline {moment(deadline, now=now, zone=zone, brief=brief)}"
    return f"{due} ({distance(deadline, now=now)})"


def distance(at: float, *, now: float) -> str:
    return f"{duration(now - at)} ago" if at < now else f"in {duration(at - now)}"


def remains(left: int, total: int, rate: float | None, deadline: float, *, now: float) -> str:
    """Return what a run that ended has left, and whether there is time for it."""
    steps = f"{left:,} of {total:,} steps left"
    if rate is None:
        return f"{steps}; {until(deadline, now=now)}"
    work = left / rate
    latest = deadline - work
    takes = f"{steps}, {duration(work)} at this pace; deadline {moment(deadline, now=now)}"
    if latest < now:
        return f"{takes}: too late at this pace"
    return f"{takes}: on time if resumed by {moment(latest, now=now)}"
