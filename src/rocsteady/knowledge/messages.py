"""What is known of lines that do not end a run: warnings, and what tools say about a machine."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from rocsteady.knowledge.data_file import read_data
from rocsteady.knowledge.values import Fix
from rocsteady.model import Value

FILE = Path(__file__).parent / "data" / "messages.toml"


class KnownMessage(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line that people ask about."""

    id: str
    title: str
    words: str  # what it means, and what it does not
    pattern: str
    sample: str  # a text that the pattern finds
    sources: tuple[str, ...]  # "owner/repo#number", or the short name of a document
    fix: Fix


class _MessageFile(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file."""

    message: tuple[KnownMessage, ...]


@cache
def known_messages(path: Path = FILE) -> tuple[KnownMessage, ...]:
    """Read the file."""
    return read_data(path, _MessageFile).message


def find_message(text: str) -> tuple[KnownMessage, str] | None:
    """Return the first known message of a text, and the line that it stands in."""
    for line in text.splitlines():
        for message in known_messages():
            if re.search(message.pattern, line):
                return message, line.strip()
    return None
