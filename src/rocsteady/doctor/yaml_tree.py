"""Reads the YAML that compose and Kubernetes files are written in, with the line of each value.

Mappings, lists, both also in one line, quotes, blocks, anchors, aliases and merges. Values stay
text. What is beyond that (tags, complex keys) is passed over; nothing is executed or constructed.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator
from typing import NamedTuple

MERGE = "<<"
QUOTES = "\"'"
INDICATORS = "[]{}#&*!|>%@`,"  # a plain key begins with none of them


class Leaf(NamedTuple):
    """One value."""

    text: str | None  # None: nothing follows the key
    line: int


Tree = Leaf | dict[str, "Tree"] | list["Tree"]


class _IncompleteError(Exception):
    """More lines are needed."""


def read_yaml(text: str) -> Iterator[Tree]:
    """Yield each document. Raises RecursionError for one that is nested without end."""
    lines = _Lines(text.splitlines())
    while lines.at < len(lines.lines):
        before = lines.at
        if lines.lines[lines.at].startswith("---"):
            lines.lines[lines.at] = lines.lines[lines.at].replace("---", "   ", 1)
            lines.anchors = {}
        if lines.peek():
            yield lines.node()
        if lines.at == before or (lines.peek() and not lines.at_end()):
            lines.at += 1  # a line that is not understood


class _Lines:
    def __init__(self, lines: list[str]) -> None:
        self.lines, self.at = lines, 0
        self.anchors: dict[str, Tree] = {}

    def at_end(self) -> bool:
        return self.lines[self.at].startswith(("---", "..."))

    def peek(self) -> tuple[int, str] | None:
        """Return the indent and the words of the next line that has some; None at the end."""
        while self.at < len(self.lines) and not self.at_end():
            line = self.lines[self.at]
            words = line.strip()
            if words and not words.startswith("#"):
                return len(line) - len(line.lstrip()), words
            self.at += 1
        return None

    def node(self) -> Tree:
        """Read what begins on the next line."""
        found = self.peek()
        if found is None:
            return Leaf(None, self.at)
        indent, words = found
        if _is_item(words):
            return self._list(indent)
        if _key(words):
            return self._mapping(indent)
        return self._value(words, indent - 1)

    def _list(self, indent: int) -> Tree:
        items: list[Tree] = []
        while (found := self.peek()) and found[0] == indent and _is_item(found[1]):
            line = self.lines[self.at]
            self.lines[self.at] = line[:indent] + " " + line[indent + 1 :]
            after = self.peek()
            items.append(self.node() if after and after[0] > indent else Leaf(None, self.at))
        return items

    def _mapping(self, indent: int) -> Tree:
        own: dict[str, Tree] = {}
        merged: dict[str, Tree] = {}
        while (found := self.peek()) and found[0] == indent and (pair := _key(found[1])):
            key, rest = pair
            value = self._value(rest, indent)
            if key == MERGE:
                for base in value if isinstance(value, list) else [value]:
                    merged = {**base, **merged} if isinstance(base, dict) else merged
            else:
                own[key] = value
        return {**merged, **own}

    def _value(self, rest: str, indent: int) -> Tree:
        """Read what follows a key, on its line and below."""
        number = self.at + 1
        anchor = ""
        while rest.startswith(("&", "!")):
            word, _, rest = rest.partition(" ")
            anchor = word[1:] if word.startswith("&") else anchor
            rest = rest.strip()
        tree = self._content(rest, indent, number)
        if anchor:
            self.anchors[anchor] = tree
        return tree

    def _content(self, rest: str, indent: int, number: int) -> Tree:
        if not rest or rest.startswith("#"):
            self.at += 1
            found = self.peek()
            below = found and (found[0] > indent or (found[0] == indent and _is_item(found[1])))
            return self.node() if below else Leaf(None, number)
        if rest[0] in "[{" or rest[0] in QUOTES:
            return self._flow(rest, number)
        self.at += 1
        if rest[0] == "*":
            return self.anchors.get(_without_comment(rest[1:]), Leaf(None, number))
        if rest[0] in "|>":
            return Leaf("\n".join(self._deeper(indent)), number)
        words = [_without_comment(rest)]
        while (found := self.peek()) and found[0] > indent:
            words.append(_without_comment(found[1]))
            self.at += 1
        return Leaf(" ".join(words), number)

    def _deeper(self, indent: int) -> Iterator[str]:
        while self.at < len(self.lines):
            line = self.lines[self.at]
            if line.strip() and len(line) - len(line.lstrip()) <= indent:
                return
            yield line.strip()
            self.at += 1

    def _flow(self, rest: str, number: int) -> Tree:
        """Read a value that ends with a bracket or a quote, on this line or a later one."""
        more = 1
        while True:
            last = min(self.at + more, len(self.lines))
            text = "\n".join([rest, *self.lines[self.at + 1 : last]])
            breaks = [at for at, letter in enumerate(text) if letter == "\n"]
            try:
                tree, end = _Flow(text, number, breaks, self.anchors).value(0)
            except _IncompleteError:
                if last == len(self.lines):
                    self.at = last
                    return Leaf(None, number)
                more *= 2
            else:
                self.at += 1 + text.count("\n", 0, end)
                return tree


class _Flow(NamedTuple):
    """A value in brackets or quotes; each method returns what it read and where that ends."""

    text: str
    number: int  # of the first line
    breaks: list[int]
    anchors: dict[str, Tree]

    def value(self, at: int) -> tuple[Tree, int]:
        at = self._skip(at)
        anchor = ""
        while self.text[at] in "&!":
            word = self._word(at)
            anchor = word[1:] if word.startswith("&") else anchor
            at = self._skip(at + len(word))
        tree, end = self._content(at)
        if anchor:
            self.anchors[anchor] = tree
        return tree, end

    def _content(self, at: int) -> tuple[Tree, int]:
        line = self.number + bisect(self.breaks, at)
        if self.text[at] == "[":
            return self._list(at + 1)
        if self.text[at] == "{":
            return self._mapping(at + 1)
        if self.text[at] in QUOTES:
            quoted, end = _quoted(self.text, at)
            return Leaf(quoted, line), end
        if self.text[at] == "*":
            word = self._word(at)
            return self.anchors.get(word[1:], Leaf(None, line)), at + len(word)
        end = at
        while end < len(self.text) and self.text[end] not in ",[]{}\n" and not self._colon(end):
            end += 1
        return Leaf(_without_comment(self.text[at:end]) or None, line), end

    def _list(self, at: int) -> tuple[Tree, int]:
        items: list[Tree] = []
        while self.text[at := self._skip(at)] != "]":
            if self.text[at] in ",}":
                at += 1
                continue
            item, at = self.value(at)
            at = self._skip(at)
            if self._colon(at) and isinstance(item, Leaf):  # [A: 1] is a mapping of one
                value, at = self.value(at + 1)
                item = {item.text or "": value}
            items.append(item)
        return items, at + 1

    def _mapping(self, at: int) -> tuple[Tree, int]:
        own: dict[str, Tree] = {}
        merged: dict[str, Tree] = {}
        while self.text[at := self._skip(at)] != "}":
            if self.text[at] in ",]":
                at += 1
                continue
            key, at = self.value(at)
            at = self._skip(at)
            value: Tree = Leaf(None, self.number)
            if self.text[at] == ":":
                at = self._skip(at + 1)
                if self.text[at] not in ",}":
                    value, at = self.value(at)
            name = key.text if isinstance(key, Leaf) else None
            if name == MERGE and isinstance(value, dict):
                merged = {**value, **merged}
            elif name:
                own[name] = value
        return {**merged, **own}, at + 1

    def _colon(self, at: int) -> bool:
        return self.text[at] == ":" and self.text[at + 1 : at + 2] in ("", " ", "\n", ",", "]", "}")

    def _word(self, at: int) -> str:
        end = at + 1
        while end < len(self.text) and self.text[end] not in " ,[]{}\n":
            end += 1
        return self.text[at:end]

    def _skip(self, at: int) -> int:
        while at < len(self.text) and self.text[at] in " \t\n":
            at += 1
            if self.text[at : at + 1] == "#":
                at = self.text.find("\n", at) % (len(self.text) + 1)
        if at >= len(self.text):
            raise _IncompleteError
        return at


def _is_item(words: str) -> bool:
    return words == "-" or words.startswith("- ")


def _key(words: str) -> tuple[str, str] | None:
    """Return a key and what follows its colon; None if there is no key."""
    if words[0] in QUOTES:
        try:
            key, end = _quoted(words, 0)
        except _IncompleteError:
            return None
        rest = words[end:].lstrip()
        return (key, rest[1:].strip()) if rest.startswith(":") else None
    if words[0] in INDICATORS:
        return None
    key, colon, rest = f"{words} ".partition(": ")
    return (key.strip(), rest.strip()) if colon and " #" not in key else None


def _quoted(text: str, at: int) -> tuple[str, int]:
    """Return a quoted value and where it ends."""
    quote, said, at = text[at], [], at + 1
    while at < len(text):
        if text[at] == "\\" and quote == '"':
            said.append(text[at + 1 : at + 2])
            at += 2
        elif text[at] == quote and quote == "'" and text[at + 1 : at + 2] == quote:
            said.append(quote)
            at += 2
        elif text[at] == quote:
            return "".join(said), at + 1
        else:
            said.append(text[at])
            at += 1
    raise _IncompleteError


def _without_comment(words: str) -> str:
    return words.partition(" #")[0].strip()
