"""Installs a bundle of knowledge, compares two, and checks what authors wrote."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from rocsteady.doctor.diagnosis import CHECKS
from rocsteady.doctor.facts import FACTS
from rocsteady.doctor.values import KnowledgeDifference
from rocsteady.errors import KnowledgeError
from rocsteady.host.atomic_file import write_whole
from rocsteady.host.download import download, without_credentials
from rocsteady.knowledge.bundle import BundleContent, open_bundle
from rocsteady.knowledge.data_checks import complaints
from rocsteady.knowledge.failures import load_failures
from rocsteady.knowledge.reader import Knowledge, load_knowledge, refuse_wrong
from rocsteady.knowledge.store import (
    INSTALLED,
    LARGEST,
    Places,
    accepted_keys,
    failures_in_use,
    in_use,
    places,
)
from rocsteady.remedies.remedy import load_remedies
from rocsteady.untrusted_file import read_regular

ADDRESS = re.compile(r"https?://", re.IGNORECASE)


def fetch_bundle(source: str, where: Places | None = None, *, not_before: str) -> BundleContent:
    """Read a bundle from a file, a folder or an address, and refuse it unless all is in order."""
    remote = ADDRESS.match(source) is not None
    raw = download(source, LARGEST) if remote else _read(Path(source))
    try:
        content = open_bundle(raw, accepted_keys(where or places()), not_before=not_before)
        refuse_wrong(content.knowledge, facts=FACTS, checks=CHECKS)
    except KnowledgeError as error:
        shown = without_credentials(source) if remote else source
        raise KnowledgeError(f"{shown}: refused: {error}") from None
    return content


def install(content: BundleContent, where: Places | None = None) -> Path:
    """Put a bundle's content in place of the installed one, whole or not at all."""
    path = (where or places()).data / INSTALLED
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, msgspec.json.encode(_without_nothing(msgspec.to_builtins(content))))
    except OSError as error:
        raise KnowledgeError(f"{path}: {error.strerror}") from None
    return path


def _without_nothing(value: object) -> object:
    """Leave out what is None: most of a condition is, and it would be read at each start."""
    if isinstance(value, dict):
        return {key: _without_nothing(each) for key, each in value.items() if each is not None}
    return [_without_nothing(each) for each in value] if isinstance(value, list | tuple) else value


def difference(content: BundleContent) -> KnowledgeDifference:
    """Compare a bundle with the knowledge in use."""
    mine = _entries(in_use().knowledge)
    mine |= {f"failure {name}": kind for name, kind in failures_in_use().kinds.items()}
    theirs = _entries(content.knowledge)
    theirs |= {f"failure {name}": kind for name, kind in content.failures.kinds.items()}
    return KnowledgeDifference(
        added=tuple(name for name in theirs if name not in mine),
        removed=tuple(name for name in mine if name not in theirs),
        changed=tuple(name for name in theirs if name in mine and mine[name] != theirs[name]),
    )


def author_complaints(folder: Path | None) -> Iterator[str]:
    """Say what is wrong with the entries in a folder, or with those in use."""
    try:
        if folder is None:
            used = in_use(facts=FACTS, checks=CHECKS)
            if used.complaint:
                yield used.complaint
            yield from complaints(used.knowledge, failures_in_use())
        else:
            knowledge = load_knowledge(folder, facts=FACTS, checks=CHECKS)
            failures = load_failures(folder) if (folder / "failures.toml").exists() else None
            yield from complaints(knowledge, failures)
    except KnowledgeError as error:
        yield str(error)


def _entries(knowledge: Knowledge) -> dict[str, object]:
    """Return every entry that has a name of its own."""
    found: dict[str, object] = {}
    for field in knowledge.__struct_fields__:
        table = getattr(knowledge, field)
        if isinstance(table, Mapping):
            found |= {f"{field.removesuffix('s')} {name}": entry for name, entry in table.items()}
        else:
            found |= {f"{field} {number}": entry for number, entry in enumerate(table)}
    return found


def _read(path: Path) -> bytes:
    """Read a bundle; of a folder the one with the last name."""
    try:
        if path.is_dir():
            path = max(path.glob("*.json"), default=path / "*.json")
        return read_regular(path, LARGEST)
    except OSError as error:
        raise KnowledgeError(f"{path}: {error.strerror}") from None


def count_entries(knowledge: Knowledge) -> dict[str, int]:
    """Count what is known, by kind."""
    failures = failures_in_use()
    return {
        "rules": len(knowledge.rules),
        "variables": len(knowledge.variables),
        "GPUs": len(knowledge.arches),
        "cards": len(knowledge.products),
        "wheels": len(knowledge.wheels) + len(knowledge.indexes),
        "failures": len(failures.kinds),
        "signatures": len(failures.signatures),
        "remedies": len(load_remedies()),
        "sources": len(knowledge.sources),
    }
