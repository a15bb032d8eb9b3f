"""A pattern from the job file, applied to the lines that a script prints.

A person wrote the pattern, and some patterns take exponential time on some lines. The ``regex``
package gives up after a time limit, which Python's own ``re`` cannot.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

LONGEST_PATTERN = 200  # characters of a pattern
SEARCHED_LENGTH = 2048  # characters of a line that are searched
SEARCH_WITHIN = 0.05  # seconds for one line
MOST_TIMEOUTS = 5  # then the pattern is no longer applied


class LineMatch(NamedTuple):
    """The named groups of a match, and where the last of them ends."""

    groups: Mapping[str, str | None]
    end: int


class LinePattern:
    """A compiled pattern that cannot hold the supervisor up."""

    def __init__(self, text: str) -> None:
        """Compile a pattern, or raise ValueError with a sentence that says what is wrong."""
        import regex  # noqa: PLC0415 - few jobs have a pattern, and it takes long to import

        if len(text) > LONGEST_PATTERN:
            raise ValueError(f"longer than {LONGEST_PATTERN} characters")
        try:
            self._pattern = regex.compile(text, regex.ASCII, cache_pattern=False)
        except (regex.error, ArithmeticError, RecursionError, MemoryError) as error:
            raise ValueError(f"not a pattern: {error}") from None
        self.names = frozenset(self._pattern.groupindex)
        self.timeouts = 0  # lines that took too long

    def search(self, line: str) -> LineMatch | None:
        """Return the first match in the line, or None if there is none or it takes too long."""
        if self.timeouts >= MOST_TIMEOUTS:
            return None
        try:
            match = self._pattern.search(line[:SEARCHED_LENGTH], timeout=SEARCH_WITHIN)
        except TimeoutError:
            self.timeouts += 1
            return None
        if match is None:
            return None
        groups = match.groupdict()
        end = max((match.end(name) for name in groups), default=match.end())
        return LineMatch(groups, end)
