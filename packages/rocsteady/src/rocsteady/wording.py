"""One format each for durations, sizes and plurals: "3 min 10 s", "1.5 GiB", "2 steps"."""

from __future__ import annotations

import math

MINUTE, HOUR, DAY, YEAR = 60, 3600, 86400, 31557600  # seconds
CENT = 0.01  # of a dollar
TEN = 9.995  # dollars; from here on cents say little
SHORT = 10  # seconds; below it, a tenth matters
UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def duration(seconds: float) -> str:
    """Format a duration in up to two units: 40 ms, 0.9 s, 45 s, 3 min 10 s, 2 h 5 min, 15 d 6 h."""
    if not math.isfinite(seconds):
        return "an unknown time"
    if 0 < seconds < 0.1:  # noqa: PLR2004 - a tenth of a second would say nothing
        return f"{seconds * 1000:.0f} ms"
    if round(seconds, 1) < SHORT:
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
    """Say an amount: "$25", "$0.40", "less than $0.01"."""
    if 0 < dollars < CENT:
        return "less than $0.01"
    return f"${dollars:,.0f}" if dollars >= TEN or dollars == int(dollars) else f"${dollars:.2f}"


def inside_a_sentence(text: str) -> str:
    """Begin a text with a small letter, unless its first word is a name such as GPU or PyTorch."""
    first = text.partition(" ")[0]
    return text if first[1:] != first[1:].lower() else text[:1].lower() + text[1:]


def plural(number: int, thing: str, things: str = "") -> str:
    """Count things: "1 step", "2,000 steps"; ``things`` is for an irregular plural."""
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"
