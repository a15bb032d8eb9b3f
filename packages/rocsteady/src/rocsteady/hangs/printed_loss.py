"""The training loss, as a script prints it. Asking the GPU for it would make training wait."""

from __future__ import annotations

import re

_LOSS = re.compile(
    r"(?<![a-z])loss(?:['\"\]]{0,2} ?[:=] ?| (?:is |of )?)(?:tensor\()?"
    r"([-+]?[0-9]{1,20}(?:\.[0-9]{0,20})?(?:e[-+]?[0-9]{1,3})?)(?![0-9a-z_]|/[0-9])"
)
_OTHERS = re.compile(r"(?:val|valid|validation|test|eval|dev|best|min|old|prev)[ _./-]?$")
BEFORE = 12  # characters before the word that may say whose loss it is
LIMIT = 400  # characters of a line that are looked at


def printed_loss(line: str) -> float | None:
    """Return the training loss that a line tells; None if it tells none."""
    text = line[:LIMIT].lower()
    if "loss" not in text:
        return None
    for found in _LOSS.finditer(text):
        if not _OTHERS.search(text[max(0, found.start() - BEFORE) : found.start()]):
            return float(found[1])
    return None
