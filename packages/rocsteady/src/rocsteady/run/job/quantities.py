"""How a person writes durations, deadlines, sizes and dollars in a job file."""

from __future__ import annotations

import math
import re
from datetime import date, datetime, timedelta

from rocsteady.system.logfile import LEAST_LOG_BYTES

LONGEST_DURATION = timedelta(days=3650)
MOST_DOLLARS = 1e9
MOST_BYTES = 10**15
_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ]")
_PART = re.compile(r"\s*([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*(ms|s|m|h|d|w)")
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_SIZE = re.compile(r"\s*([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*([KMGT]i?B)\s*", re.IGNORECASE)
_BYTES: dict[str, int] = {
    f"{unit}{kind}": base**power
    for power, unit in enumerate("kmgt", 1)
    for kind, base in (("b", 1000), ("ib", 1024))
}
_DOLLARS = re.compile(r"\s*([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*(?:USD|usd)\s*")


def duration(value: object) -> timedelta:
    """Read "90s", "2h 30m" or "1.5d". A bare number has no unit and is refused."""
    total, rest = timedelta(0), value if isinstance(value, str) else ""
    while match := _PART.match(rest):
        total += timedelta(seconds=float(match.group(1)) * _SECONDS[match.group(2)])
        rest = rest[match.end() :]
    if rest.strip() or not isinstance(value, str) or not value.strip():
        raise ValueError(f"{value!r} is not a duration; write it as 90s, 10m, 2h 30m or 3d")
    if not timedelta(0) < total <= LONGEST_DURATION:
        raise ValueError(f"{value!r}: must be more than 0 and less than 10 years")
    return total


def deadline(value: object) -> dict[str, object]:
    """Read a moment, or a time from the start. A moment without a zone is by this machine's."""
    if isinstance(value, str):
        if not _MOMENT.match(value):
            return {"within": duration(value)}
        return deadline(datetime.fromisoformat(re.sub(r"[Zz]$", "+00:00", value)))
    if isinstance(value, datetime):
        try:
            return {"at": value.astimezone()}
        except (OverflowError, OSError):
            raise ValueError(f"{value} is too far in the future") from None
    if isinstance(value, date):
        raise ValueError(f"{value} has no time of day; write it as {value}T18:00:00")  # noqa: TRY004 - told with the others
    raise ValueError(f"{value!r} is neither a date with a time nor a duration")


def size(value: object) -> int:
    """Read "200MB", "1.5GB" or "64 MiB"."""
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f'{value!r} is not a size; write it as "200MB" or "2GB"')
    found = round(float(match.group(1)) * _BYTES[match.group(2).lower()])
    if not LEAST_LOG_BYTES <= found <= MOST_BYTES:
        raise ValueError(f"{value!r}: from {LEAST_LOG_BYTES // 1_000_000} MB to 1,000 TB")
    return found


def dollars(value: object) -> float:
    """Read 25 or "25 USD"."""
    if isinstance(value, str) and (match := _DOLLARS.fullmatch(value)):
        value = float(match.group(1))
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f'{value!r} is not an amount in dollars; write it as 25 or "25 USD"')  # noqa: TRY004 - told with the others
    if not math.isfinite(value) or not 0 <= value <= MOST_DOLLARS:
        raise ValueError(f"{value!r}: must be between 0 and a billion dollars")
    return float(value)
