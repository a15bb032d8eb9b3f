"""How long and when, in words: "15 d 6 h", "3 h", "Sun 30 Nov 18:00".

The words are English whatever the locale is. A zone of None is that of this machine.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone, tzinfo

MINUTE, HOUR, DAY, YEAR = 60, 3600, 86400, 31557600  # seconds
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
NEAR = 180 * DAY  # from now; a day so near needs no year
ENDLESS = 99 * YEAR  # from now; nobody waits for it
NEVER = "never"
SHORT = 10  # seconds; below it a digit more says something
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def spelled(seconds: float) -> str:
    """Spell a duration in two units: 0.9 s, 45 s, 3 min 10 s, 2 h 5 min, 15 d 6 h, 3 years."""
    if round(seconds, 1) < SHORT:
        return f"{seconds:.1f} s"
    if seconds >= 100 * DAY:
        return roughly(seconds)
    for unit, name, part, parts in (
        (DAY, "d", HOUR, "h"),
        (HOUR, "h", MINUTE, "min"),
        (MINUTE, "min", 1, "s"),
    ):
        whole, rest = divmod(round(seconds / part) * part, unit)
        if whole * unit + rest >= (unit if unit == HOUR else 2 * unit):
            return f"{whole} {name} {rest // part} {parts}" if rest else f"{whole} {name}"
    return f"{seconds:.0f} s"


def roughly(seconds: float) -> str:
    """Spell a duration in one unit: 8 s, 45 min, 36 h, 15 d, 3 years."""
    for unit, name in ((YEAR, "years"), (DAY, "d"), (HOUR, "h"), (MINUTE, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:,.0f} {name}"
    return f"{seconds:.0f} s"


def moment(at: float, *, now: float, zone: tzinfo | None = None) -> str:
    """Name a moment: Sun 30 Nov 18:00; with the year where it is far from now."""
    if not at - now < ENDLESS:  # nor is what is no number
        return NEVER
    local = _local(at, zone)
    return f"{DAYS[local.weekday()]} {_day(local, at - now)} {local:%H:%M}"


def moment_within(at: float, *, spread: float, now: float, zone: tzinfo | None = None) -> str:
    """Name a moment no closer than it is known: today 14:20, 25 Nov 02:00, 25 Nov, Mar 2027."""
    ahead = at - now
    if not ahead < ENDLESS:
        return NEVER
    if 0 <= ahead < 2 * MINUTE:
        return f"in {roughly(ahead)}"
    local = _local(at, zone)
    coarse = max(spread, ahead / 50)
    if coarse >= 45 * DAY:
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
