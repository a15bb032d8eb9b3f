"""What is known of lines that do not end a run: warnings, and what tools say about a machine."""

from __future__ import annotations

import re
from functools import cache

from rocsteady.knowledge.reader import DataFolder, Problems
from rocsteady.knowledge.values import Fix
from rocsteady.model import Value


class KnownMessage(Value, frozen=True, kw_only=True):
    """One line that people ask about."""

    id: str
    title: str
    words: str  # what it means, and what it does not
    pattern: str
    sample: str  # a text that the pattern finds
    sources: tuple[str, ...]  # "owner/repo#number", or the short name of a document
    fix: Fix


@cache
def known_messages(data: DataFolder | None = None) -> tuple[KnownMessage, ...]:
    """Read the table."""
    data = data or DataFolder()
    entries = data.entries(data.document("messages.toml", "message"), "message", KnownMessage)
    return data.listed(entries, _wrong_with)


def _wrong_with(message: KnownMessage) -> Problems:
    try:
        re.compile(message.pattern)
    except re.error as error:
        yield "pattern", str(error)


def find_message(text: str) -> tuple[KnownMessage, str] | None:
    """Return the first known message of a text, and the line that it stands in."""
    for line in text.splitlines():
        for message in known_messages():
            if re.search(message.pattern, line):
                return message, line.strip()
    return None
