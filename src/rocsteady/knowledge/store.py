"""Which knowledge is in use: that of the package or a later bundle, and the user's own entries.

A bundle is checked when it is installed. After that its content lies in the user's data folder, and
is decoded without being checked again, which keeps 10,000 entries fast. One that cannot be read, or
is older than the package, is not used.
"""

from __future__ import annotations

import gc
from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec

from rocsteady.errors import KnowledgeError
from rocsteady.knowledge.edition import Edition, load_edition
from rocsteady.knowledge.reader import Knowledge, load_knowledge, with_own_entries
from rocsteady.model import Value
from rocsteady.untrusted_file import read_regular
from rocsteady.user_folders import config_folder, data_folder

if TYPE_CHECKING:
    from rocsteady.knowledge.bundle import KnowledgePart
    from rocsteady.knowledge.failures import FailureKnowledge

INSTALLED = "knowledge.json"  # in the user's data folder
OWN = "knowledge"  # in the user's configuration folder: TOML files, and a file with keys
KEYS = "keys.txt"  # one a line, in base64


LARGEST = 64 * 1024 * 1024  # bytes
Part = TypeVar("Part", bound=Value)


class Places(NamedTuple):
    """Where the user's knowledge lies."""

    data: Path
    config: Path


class InUse(NamedTuple):
    """The knowledge, of when it is, and what is said about where it comes from."""

    knowledge: Knowledge
    edition: Edition
    installed: bool  # from a bundle, not from the package
    own: int  # entries of the user's own
    complaint: str = ""  # why an installed bundle is not used


def places() -> Places:
    """Return the folders of this user."""
    return Places(
        data=data_folder(),
        config=config_folder() / OWN,
    )


def accepted_keys(where: Places) -> tuple[str, ...]:
    """Return the pinned keys, and those that the user added."""
    try:
        own = read_regular(where.config / KEYS, 64 * 1024).decode("ascii", "replace").split("\n")
    except OSError:
        own = []
    from rocsteady.knowledge.bundle import PINNED  # noqa: PLC0415 - only for an update

    return (*PINNED, *(line.strip() for line in own if line.strip() and line[0] != "#"))


def in_use(
    where: Places | None = None,
    *,
    facts: Collection[str] | None = None,
    checks: Collection[str] | None = None,
) -> InUse:
    """Load the knowledge that counts here."""
    where = where or places()
    shipped, complaint = load_edition(), ""
    content = None
    try:
        content = _installed_knowledge(where)
    except KnowledgeError as error:
        complaint = f"the installed knowledge is not used: {error}"
    if content is not None and content.edition.date >= shipped.date:
        knowledge, edition, installed = content.knowledge, content.edition, True
    else:
        knowledge = load_knowledge(facts=facts, checks=checks)
        edition, installed = shipped, False
    before = len(knowledge.rules) + len(knowledge.variables)
    own_files = own_entries(where)
    if own_files:
        try:
            knowledge = with_own_entries(knowledge, own_files, facts=facts, checks=checks)
        except KnowledgeError as error:  # a file of the user's must not keep the doctor away
            ignored = f"your own entries in {where.config} are not used: {error}"
            complaint = f"{complaint}; {ignored}" if complaint else ignored
    own = len(knowledge.rules) + len(knowledge.variables) - before
    return InUse(knowledge, edition, installed, own, complaint)


def own_entries(where: Places) -> tuple[Path, ...]:
    """Return the user's own files, in the order of their names."""
    try:
        return tuple(sorted(where.config.glob("*.toml")))
    except OSError:
        return ()


def _installed_knowledge(where: Places) -> KnowledgePart | None:
    if not (where.data / INSTALLED).exists():
        return None
    from rocsteady.knowledge.bundle import KnowledgePart  # noqa: PLC0415 - seldom needed

    return read_installed(where, KnowledgePart)


@cache
def failures_in_use(where: Places | None = None) -> FailureKnowledge:
    """Load the failures that count here."""
    from rocsteady.knowledge.bundle import FailurePart  # noqa: PLC0415 - not needed by the doctor
    from rocsteady.knowledge.failures import load_failures  # noqa: PLC0415

    try:
        content = read_installed(where or places(), FailurePart)
    except KnowledgeError:
        content = None
    if content is not None and content.edition.date >= load_edition().date:
        return content.failures
    return load_failures()


def read_installed(where: Places, part: type[Part]) -> Part | None:
    """Return a part of the installed bundle; None if there is none."""
    path = where.data / INSTALLED
    try:
        raw = read_regular(path, LARGEST)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise KnowledgeError(f"{path}: {error.strerror}") from None
    collecting = gc.isenabled()
    gc.disable()  # thousands of values and no garbage: the collector would only look at them
    try:
        return msgspec.json.decode(raw, type=part)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise KnowledgeError(f"{path}: {error}") from None
    finally:
        if collecting:
            gc.enable()
