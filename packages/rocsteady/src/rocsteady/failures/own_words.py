"""Which failures somebody may mean who describes one in their own words, without a message.

Each failure has lines that people say of it. A text is compared with each line by the words that
both have; a word counts for more, the fewer failures it is said of. All of it is a guess.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from functools import cache

from rocsteady.doctor.knowledge.failures import KnownFailure, load_failures
from rocsteady.doctor.knowledge.reader import DataFolder

MOST_WORDS, MOST_LETTERS = 60, 1000  # of a text; a longer one is output, not a description
MOST_GUESSES = 3
LEAST = 0.3  # of 1, that the best guess must be alike
NEAR = 0.55  # of the best; what is less alike is not told
WORDS_IN_COMMON = 2  # at least; one says little
ANYWHERE = 0.6  # how much a word counts for that is in any line of a failure
MOST_RARE = 2.5  # how much more than nothing a word can say

# A program's words, not a person's.
_MESSAGE = re.compile(r"(?:Error|Exception|Warning)\b|Traceback")
_WORD = re.compile(r"[a-z_]+\d*|\d+")
_ENDING = re.compile(r"(?<=[a-z]{3})(?:ingly|ings|ing|edly|ed|es|s|ly|e)$")
_RANKS = re.compile(
    r"\b(?:two|multiple|several|both|dual|[2-8])\s*x?\s*(?:\w+ ?){0,2}?(?:gpu|card|xtx?|mi\d+)s?\b"
)


def guesses(text: str) -> tuple[KnownFailure, ...]:
    """Return what may be meant, the likeliest first; nothing if no line is much like it."""
    is_long = len(text) > MOST_LETTERS or len(text.split()) > MOST_WORDS
    said = frozenset() if is_long or _MESSAGE.search(text) else _words(text)
    if not said:
        return ()
    rarity = _rarity()
    scores = {kind: _alike(said, lines, rarity) for kind, lines in _lines().items()}
    best = max(scores.values())
    near = [kind for kind in scores if scores[kind] >= max(LEAST, NEAR * best)]
    near.sort(key=scores.__getitem__, reverse=True)
    kinds = load_failures().kinds
    return tuple(kinds[kind] for kind in near[:MOST_GUESSES])


def _alike(
    said: frozenset[str], lines: tuple[frozenset[str], ...], rarity: Mapping[str, float]
) -> float:
    """Return how much of what was said is in the best line, and how much of that line was said."""
    most, anywhere = rarity[""], said.intersection(frozenset().union(*lines))
    if len(anywhere) < min(WORDS_IN_COMMON, len(said)):
        return 0.0
    whole = sum(rarity.get(word, most) for word in said)
    best = 0.0
    for line in lines:
        both = sum(rarity[word] for word in said & line)
        best = max(best, both / math.sqrt(whole * sum(rarity[word] for word in line)))
    together = sum(rarity[word] for word in anywhere) / whole
    return best + ANYWHERE * together


@cache
def _lines() -> dict[str, tuple[frozenset[str], ...]]:
    return {
        known.id: tuple(_words(line) for line in (known.title, *known.said))
        for known in load_failures().kinds.values()
        if known.said
    }


@cache
def _rarity() -> dict[str, float]:
    """Return how much a word says, by how few failures it is said of; "": one that nobody said."""
    lines = _lines()
    seen = Counter(word for each in lines.values() for word in frozenset().union(*each))
    known = {word: min(math.log(1 + len(lines) / seen[word]), MOST_RARE) for word in seen}
    return known | {"": MOST_RARE / 3} | {word: known[word] / 2 for word in known if word.isdigit()}


@cache
def _vocabulary() -> tuple[dict[str, str], frozenset[str]]:
    """Return the word that stands for each of those that mean the same, and what says nothing."""
    content = DataFolder().document("own_words.toml", "same", "dropped").content
    same = (line.split() for line in content["same"])
    stands_for = {_ENDING.sub("", word): words[0] for words in same for word in words}
    return stands_for, frozenset(content["dropped"].split())


def _words(text: str) -> frozenset[str]:
    stands_for, dropped = _vocabulary()
    found = _WORD.findall(_RANKS.sub("multi", text.lower()))
    stems = (_ENDING.sub("", word) for word in found if word not in dropped)
    return frozenset(stands_for.get(stem, stem) for stem in stems)
