"""What is known of failures: what each is called, what it means, and by what it is recognised.

``failures.toml`` has the kinds, ``signatures/`` the ways to recognise them. Both have sources.
"""

from __future__ import annotations

import re
from enum import Enum
from functools import cache
from typing import Annotated

from msgspec import Meta

from rocsteady.doctor.knowledge.reader import DataFolder, Problems, blanks
from rocsteady.doctor.knowledge.values import Fix, KnowledgeEntry, Slug, Sources, Text
from rocsteady.errors import KnowledgeError
from rocsteady.model import Certainty, Failure, FailureKind, Fingerprint, Role, Value

_WORD = frozenset(b"_ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
_BLANK = bytes(code if code in _WORD else ord(" ") for code in range(256))


class Nature(Enum):
    """Whether the same run would fail again."""

    TRANSIENT = "transient"  # it may well go through when it is tried again unchanged
    DETERMINISTIC = "deterministic"  # it comes again at the same place
    EITHER = "either"


class Component(Enum):
    """What failed, as far as that tells what may be changed."""

    DEVICE = "device"
    MEMORY = "memory"
    LOADER = "loader"
    NETWORK = "network"
    RANKS = "ranks"
    DISK = "disk"
    NUMBERS = "numbers"
    SCRIPT = "script"
    INSTALL = "install"
    MACHINE = "machine"
    UNKNOWN = "unknown"


class Where(Enum):
    """What a signature is looked for in."""

    LOG = "log"  # a line that a process printed, or the message of an exception
    KERNEL = "kernel"  # a line of the kernel's log
    EXCEPTION = "exception"  # a Python exception: its type, its message, the files it went through
    STACK = "stack"  # where a thread stands
    EXIT = "exit"  # how the process ended


class KnownFailure(KnowledgeEntry, frozen=True, kw_only=True):
    id: Slug
    title: Annotated[str, Meta(pattern=r"^.*\S.*$")]  # one line
    said: tuple[str, ...] = ()  # how people say it who have no error message
    words: Text  # what it means, and what it does not
    gpu_words: str = ""  # the same, where a GPU may be involved
    rank_words: str = ""  # the same, where there may be several ranks
    clears: bool = False  # it can clear up by itself, so it is waited for
    change: str = ""  # what to change in the script at the line where it hangs
    meanwhile: str = ""  # what a person can do while it is waited for, in a few words
    nature: Nature
    component: Component
    sources: Sources  # "owner/repo#number", or the short name of a document
    fix: Fix | None = None  # where nothing but a person helps
    advice: Fix | None = None  # what a person can do as well, where the program has remedies

    @property
    def failure(self) -> Failure:
        """One of this kind, of which nothing else is known."""
        return Failure(
            kind=self.id,
            title=self.title,
            words=self.words,
            certainty=Certainty.CERTAIN,
            fingerprint=Fingerprint(kind=self.id),
            seen=(),
            sources=self.sources,
        )


class Signature(KnowledgeEntry, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One way to recognise a kind."""

    id: Slug
    failure: str  # a kind; "unknown" for what only wraps another failure
    where: Where
    sources: Sources
    sample: str = ""  # a text that it recognises
    literals: tuple[str, ...] = ()  # whole words; one of them stands in the text, or nothing fits
    pattern: str = ""  # a regular expression; its group "place" is what the failure is tied to
    exceptions: tuple[str, ...] = ()  # types, qualified as a traceback prints them
    frames: tuple[str, ...] = ()  # "function (end/of/file.py)", either of them alone: one of these
    signals: tuple[int, ...] = ()
    codes: tuple[int, ...] = ()  # exit codes, as Windows and shells give them
    role: Role = Role.ROOT
    certainty: Certainty = Certainty.CERTAIN
    times: int = 1  # how often it must be seen to count
    alone: bool = True  # whether it names a failure with no other sign that there was one
    notes: str = ""


class FailureKnowledge(Value, frozen=True, kw_only=True):
    """All kinds by their ids, in the order of the file, and all signatures."""

    kinds: dict[str, KnownFailure]
    signatures: tuple[Signature, ...]


@cache
def load_failures(data: DataFolder | None = None) -> FailureKnowledge:
    data = data or DataFolder()
    kinds = data.named(
        data.entries(data.document("failures.toml", "failure"), "failure", KnownFailure),
        "id",
        lambda kind: (*blanks(kind.fix), *blanks(kind.advice)),
    )
    for needed in (FailureKind.UNKNOWN, FailureKind.SCRIPT_ERROR):
        if needed not in kinds:
            raise KnowledgeError(f"failures.toml: {needed}: missing")

    def wrong_with(signature: Signature) -> Problems:
        if signature.failure not in kinds:
            yield "failure", f"{signature.failure!r} is not in failures.toml"
        if signature.where is not Where.EXIT and not signature.sample.strip():
            yield "sample", "empty"
        yield from _wrong_with_means(signature)
        if signature.pattern:
            yield from _wrong_with_pattern(signature)

    signatures = (
        entry
        for document in data.documents("signatures", "signature")
        for entry in data.entries(document, "signature", Signature)
    )
    found = data.named(signatures, "id", wrong_with)
    return FailureKnowledge(kinds=kinds, signatures=tuple(found.values()))


def words_of(text: str) -> frozenset[bytes]:
    """Return the words of a text, without digits and signs: what literals are searched by."""
    return frozenset(text.encode(errors="replace").translate(_BLANK).split())


def _wrong_with_means(signature: Signature) -> Problems:
    """Yield what a signature lacks of what it is to be recognised by."""
    means = {
        Where.LOG: ("pattern",),
        Where.KERNEL: ("pattern",),
        Where.EXCEPTION: ("exceptions", "pattern", "frames"),
        Where.STACK: ("frames", "pattern"),
        Where.EXIT: ("signals", "codes"),
    }[signature.where]
    if not any(getattr(signature, field) for field in means):
        yield means[0], f"needed where it is looked for in: {signature.where.value}"


def _wrong_with_pattern(signature: Signature) -> Problems:
    try:
        re.compile(signature.pattern)
    except re.error as error:
        yield "pattern", str(error)
    if signature.where is not Where.STACK and not signature.literals:
        yield "literals", "needed with a pattern: only texts that have one are searched"
    for literal in signature.literals:
        if literal.isascii() and not words_of(literal):
            yield "literals", f"{literal!r} has no word"


# What is known of lines that do not end a run: warnings, and what tools say about a machine.


class KnownMessage(KnowledgeEntry, frozen=True, kw_only=True):
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
    data = data or DataFolder()
    entries = data.entries(data.document("messages.toml", "message"), "message", KnownMessage)
    return tuple(data.named(entries, "id", _wrong_with).values())


def _wrong_with(message: KnownMessage) -> Problems:
    yield from blanks(message.fix)
    try:
        re.compile(message.pattern)
    except re.error as error:
        yield "pattern", str(error)


LONGEST_LINE = 2000  # characters behind a message that are shown with it


def find_message(text: str) -> tuple[KnownMessage, str] | None:
    """Return the first known message of a text, and the line that it stands in."""
    found = [(re.search(message.pattern, text), message) for message in known_messages()]
    hits = [(match, message) for match, message in found if match]
    if not hits:
        return None
    first, message = min(hits, key=lambda hit: hit[0].start())
    start = 1 + max(text.rfind(end, 0, first.start()) for end in "\r\n")
    return message, re.split(r"[\r\n]", text[start : first.end() + LONGEST_LINE])[0].strip()
