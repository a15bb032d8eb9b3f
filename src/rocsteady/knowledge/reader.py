"""Reads the knowledge base and refuses what is wrong with it, by file, entry and field.

People write TOML; a large base comes as JSON of the same shape, which reads a hundred times faster.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from rocsteady.errors import KnowledgeError
from rocsteady.knowledge.conditions import PLACEHOLDER, problems
from rocsteady.knowledge.hardware import Arch, Product, Variable, WheelRelease
from rocsteady.knowledge.rules import Rule
from rocsteady.vocabulary import Source, Value

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DATA = Path(__file__).parent / "data"
SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")

T = TypeVar("T", bound=Value)


class Knowledge(Value, frozen=True, kw_only=True):
    """Everything that is known, by the names it is looked up with."""

    rules: dict[str, Rule]
    sources: dict[str, Source]
    variables: dict[str, Variable]
    arches: dict[str, Arch]
    products: tuple[Product, ...]
    wheels: tuple[WheelRelease, ...]

    def product(self, device: int | None, revision: int | None) -> Product | None:
        """Return the card with this PCI device; the one with its revision if there is one."""
        same = [product for product in self.products if product.device == device]
        exact = [product for product in same if product.revision == revision]
        return next(iter([*exact, *(found for found in same if found.revision is None)]), None)


def load_knowledge(
    folder: Path = DATA,
    *,
    facts: Collection[str] | None = None,
    checks: Collection[str] | None = None,
) -> Knowledge:
    """Read every file below ``folder``.

    ``facts`` and ``checks`` are the names that conditions may use; without them that one thing is
    not validated.
    """
    sources = {
        key: _typed(entry, Source, f"sources.toml: {key}")
        for key, entry in _table(_decoded(folder / "sources.toml"), "sources").items()
    }
    gpus = _decoded(folder / "gpus.toml")
    arches = {arch.gfx: arch for arch in _entries(gpus, "arch", Arch, "gpus.toml")}
    wheels = _entries(_decoded(folder / "wheels.toml"), "release", WheelRelease, "wheels.toml")
    variables = {
        variable.name: variable
        for variable in _entries(
            _decoded(folder / "variables.toml"), "variable", Variable, "variables.toml"
        )
    }
    known = _References(
        sources=sources,
        families={arch.family for arch in arches.values()},
        facts=None if facts is None else {*facts, *(f"variable:{name}" for name in variables)},
        checks=checks,
    )
    rules: dict[str, Rule] = {}
    for path in sorted((folder / "rules").iterdir()):
        if path.suffix not in (".toml", ".json"):
            continue
        for rule in _entries(_decoded(path), "rule", Rule, path.name):
            for field, problem in _problems(rule, known):
                raise KnowledgeError(f"{path.name}: {rule.id}: {field}: {problem}")
            if rule.id in rules:
                raise KnowledgeError(f"{path.name}: {rule.id}: id: taken by another rule")
            rules[rule.id] = rule
    return Knowledge(
        rules=rules,
        sources=sources,
        variables=variables,
        arches=arches,
        products=tuple(_entries(gpus, "product", Product, "gpus.toml")),
        wheels=tuple(wheels),
    )


class _References(Value, frozen=True, kw_only=True):
    """The names that a rule may refer to. None: not to be checked."""

    sources: Collection[str]
    families: Collection[str]
    facts: Collection[str] | None
    checks: Collection[str] | None


def _problems(rule: Rule, known: _References) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a rule: the field, and a sentence."""
    if not SLUG.fullmatch(rule.id):
        yield "id", "lower case words joined by hyphens"
    texts = {
        "title": rule.title,
        "summary": rule.summary,
        "why": rule.why,
        "fix.text": rule.fix.text,
    }
    yield from ((field, "empty") for field, text in texts.items() if not text.strip())
    if not rule.sources:
        yield "sources", "every rule has one"
    for key in rule.sources:
        if key not in known.sources:
            yield "sources", f"{key!r} is not in sources.toml"
    yield from problems(rule.when, facts=known.facts, checks=known.checks, families=known.families)
    for field, text in (
        ("summary", rule.summary),
        *(("fix.commands", line) for line in rule.fix.commands),
    ):
        for name in PLACEHOLDER.findall(text):
            if known.facts is not None and name != "seen" and name not in known.facts:
                yield field, f"{{{name}}} is not a fact"


def _entries(document: Mapping[str, Any], key: str, kind: type[T], file: str) -> list[T]:
    entries = document.get(key, [])
    if not isinstance(entries, list):
        raise KnowledgeError(f"{file}: {key}: must be a list of tables")
    return [
        _typed(entry, kind, f"{file}: {_name(entry, index)}")
        for index, entry in enumerate(entries, start=1)
    ]


def _name(entry: object, index: int) -> str:
    """Call an entry what its author calls it, or by its place."""
    if isinstance(entry, Mapping):
        for key in ("id", "name", "gfx", "torch"):
            if isinstance(entry.get(key), str):
                return str(entry[key])
    return f"entry {index}"


def _typed(entry: object, kind: type[T], where: str) -> T:
    try:
        return msgspec.convert(entry, kind)
    except msgspec.ValidationError as error:
        raise KnowledgeError(f"{where}: {error}") from None


def _table(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    table = document.get(key, {})
    if not isinstance(table, Mapping):
        raise KnowledgeError(f"{key}: must be a table")
    return table


def _decoded(path: Path) -> dict[str, Any]:
    try:
        content = path.read_bytes()
        if path.suffix == ".json":
            return msgspec.json.decode(content, type=dict[str, Any])
        return tomllib.loads(content.decode())
    except (OSError, ValueError, msgspec.DecodeError) as error:
        raise KnowledgeError(f"{path.name}: {error}") from None
