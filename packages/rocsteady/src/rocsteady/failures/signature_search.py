"""Finds the lines of a text that signatures recognise, fast and with bounded memory.

Most of a log is progress. A signature is looked for only if all words of one of its literals occur
somewhere, its pattern only around that literal: no pattern ever sees the whole text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from rocsteady.doctor.knowledge.failures import Signature, Where, words_of
from rocsteady.failures.tracebacks import occurrences, unlabelled

PIECE = 1 << 20  # characters whose words are taken at once
CONTEXT_LENGTH = 1000  # characters of a line before and after a literal
SAMPLE = 4000  # characters at the end by which a prefix is found
PREFIX_SHARE = 0.9  # of the lines have it
# Places of a literal that are looked at, from the beginning, and as many from the end.
MAX_HITS = 32

_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b\n]{0,200}(?:\x07|\x1b\\)|\x1b[@-Z\\-_]"
)


# What stands before every line: a quotation, a container's name, a time and maybe a level.
_TIME = r"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.,\d]{0,10}(?:Z|[+-]\d\d:?\d\d)?\]?"
_PREFIXES = tuple(
    re.compile(prefix, re.MULTILINE)
    for prefix in (r"^> ?", r"^[\w.-]{1,40} {1,20}\| ?", rf"^{_TIME}(?: \[?[A-Z]{{4,7}}\]?)?:? ?")
)

# PyTorch's own line, broken in two where somebody pasted it: the numbers are in the second.
_BROKEN = re.compile(r"(out of memory\.)[ \t]*\n[ \t]*(?=Tried to allocate)")


class Hit(NamedTuple):
    at: int  # in the text
    signature: Signature
    line: str
    found: re.Match[str]


def cleaned(text: str) -> str:
    """Return a text in plain lines: no colours, no times, a bar that is redrawn is many lines."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if "\x1b" in text or "\x9b" in text:
        text = _ESCAPES.sub("", text)
    text = _BROKEN.sub(r"\1 ", text)
    last = [line for line in text[-SAMPLE:].split("\n")[1:] if line.strip()] or [
        text[:CONTEXT_LENGTH]
    ]
    for prefix in _PREFIXES:
        if sum(prefix.match(line) is not None for line in last) >= PREFIX_SHARE * len(last):
            return prefix.sub("", text)
    return text


class Scanner:
    def __init__(self, signatures: Iterable[Signature]) -> None:
        self._patterns = [
            (it, re.compile(it.pattern), [(literal, words_of(literal)) for literal in it.literals])
            for it in signatures
            if it.pattern and it.where in (Where.LOG, Where.KERNEL)
        ]
        self._known = frozenset(
            word for *_, literals in self._patterns for _, words in literals for word in words
        )

    def scan(self, text: str) -> list[Hit]:
        """Return the lines that are recognised, in the order of the text."""
        present = self._words_in(text)
        hits: list[Hit] = []
        for signature, pattern, literals in self._patterns:
            seen: set[int] = set()
            found: list[Hit] = []
            for literal, words in literals:
                if words <= present:
                    found += _hits(text, signature, pattern, literal, seen)
            hits += found if len(found) >= signature.times else ()
        return sorted(hits, key=lambda hit: hit.at)

    def _words_in(self, text: str) -> frozenset[bytes]:
        """Return the words that matter; those at the seam of two pieces are seen in both."""
        present: set[bytes] = set()
        for start in range(0, len(text), PIECE):
            present |= self._known & words_of(text[max(0, start - CONTEXT_LENGTH) : start + PIECE])
        return frozenset(present)


def _hits(
    text: str, signature: Signature, pattern: re.Pattern[str], literal: str, seen: set[int]
) -> Iterator[Hit]:
    for at in occurrences(text, literal, MAX_HITS):
        start = text.rfind("\n", max(0, at - CONTEXT_LENGTH), at) + 1 or max(0, at - CONTEXT_LENGTH)
        if start in seen:
            continue
        seen.add(start)
        end = text.find("\n", at, at + CONTEXT_LENGTH)
        line = text[start : end if end >= 0 else at + CONTEXT_LENGTH]
        found = pattern.search(unlabelled(line)[1])
        if found:
            yield Hit(start, signature, line, found)
