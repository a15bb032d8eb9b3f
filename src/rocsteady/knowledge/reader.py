"""Reads the knowledge base and refuses what is wrong with it, by file, entry and field.

People write TOML; a large base comes as JSON of the same shape, which is read many times faster.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from rocsteady.errors import KnowledgeError
from rocsteady.knowledge.conditions import PLACEHOLDER, is_range, leaves, problems
from rocsteady.knowledge.hardware import Arch, Product, Variable, WheelIndex, WheelRelease, Wheels
from rocsteady.knowledge.rules import Rule
from rocsteady.knowledge.values import Source
from rocsteady.model import Value
from rocsteady.toml import parse_toml

DATA = Path(__file__).parent / "data"
SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")

T = TypeVar("T", bound=Value)
Problems = Iterable[tuple[str, str]]  # the field, and a sentence


class Knowledge(Value, frozen=True, kw_only=True):
    """Everything that is known, by the names it is looked up with."""

    rules: dict[str, Rule]
    sources: dict[str, Source]
    variables: dict[str, Variable]
    arches: dict[str, Arch]
    products: tuple[Product, ...]
    wheels: tuple[WheelRelease, ...]
    indexes: tuple[WheelIndex, ...] = ()

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
    sources = _sources(folder / "sources.toml")
    gpus = _document(folder / "gpus.toml", "arch", "product")
    wheels = _document(folder / "wheels.toml", "release", "index")
    arches = _by_name(_entries(gpus, "arch", Arch), lambda arch: arch.gfx, "gfx")
    for gfx, arch in arches.items():
        _refuse(f"gpus.toml: {gfx}", _unsourced(arch.sources, sources))
    known = _References(
        sources=sources,
        families={arch.family for arch in arches.values()},
        arches=arches,
        facts=facts,
        checks=checks,
    )
    variables = _by_name(
        _entries(_document(folder / "variables.toml", "variable"), "variable", Variable),
        lambda variable: variable.name,
        "name",
        lambda variable: _unsourced(variable.sources, sources),
    )
    for name, variable in variables.items():
        _refuse(f"variables.toml: {name}", _uncancelled(variable, variables))
    if facts is not None:
        names = {*facts, *(f"variable:{name}" for name in variables)}
        known = msgspec.structs.replace(known, facts=names)
    return Knowledge(
        rules=_by_name(_rules(folder / "rules"), lambda rule: rule.id, "id", known.wrong_with),
        sources=sources,
        variables=variables,
        arches=arches,
        products=_checked(_entries(gpus, "product", Product), known.wrong_with_product),
        wheels=_checked(_entries(wheels, "release", WheelRelease), known.wrong_with_wheel),
        indexes=_checked(_entries(wheels, "index", WheelIndex), known.wrong_with_wheel),
    )


def with_own_entries(
    knowledge: Knowledge,
    files: Iterable[Path],
    *,
    facts: Collection[str] | None = None,
    checks: Collection[str] | None = None,
) -> Knowledge:
    """Add what is in more files: rules, variables and sources. A name that is taken is replaced."""
    sources, variables, rules = (
        dict(knowledge.sources),
        dict(knowledge.variables),
        dict(knowledge.rules),
    )
    for path in files:
        own = _document(path, "rule", "variable", "sources")
        table = own.content.get("sources", {})
        for key, entry in table.items() if isinstance(table, dict) else ():
            sources[key] = _typed(entry, Source, f"{path.name}: {key}")
        variables |= {each.name: each for _, each in _entries(own, "variable", Variable)}
        rules |= {each.id: each for _, each in _entries(own, "rule", Rule)}
    more = msgspec.structs.replace(knowledge, sources=sources, variables=variables, rules=rules)
    refuse_wrong(more, facts=facts, checks=checks)
    return more


def refuse_wrong(
    knowledge: Knowledge,
    *,
    facts: Collection[str] | None = None,
    checks: Collection[str] | None = None,
) -> None:
    """Refuse entries that are well typed and wrong, as the reader of files does."""
    names = None if facts is None else {*facts, *(f"variable:{it}" for it in knowledge.variables)}
    known = _References(
        sources=knowledge.sources,
        families={arch.family for arch in knowledge.arches.values()},
        arches=knowledge.arches,
        facts=names,
        checks=checks,
    )
    for rule in knowledge.rules.values():
        _refuse(rule.id, known.wrong_with(rule))
    for arch in knowledge.arches.values():
        _refuse(arch.gfx, _unsourced(arch.sources, knowledge.sources))
    for variable in knowledge.variables.values():
        _refuse(variable.name, _unsourced(variable.sources, knowledge.sources))
        _refuse(variable.name, _uncancelled(variable, knowledge.variables))
    for product in knowledge.products:
        _refuse(product.name, known.wrong_with_product(product))
    for wheel in (*knowledge.wheels, *knowledge.indexes):
        _refuse(wheel.torch, known.wrong_with_wheel(wheel))


class _References(Value, frozen=True, kw_only=True):
    """The names that an entry may refer to. None: not to be checked."""

    sources: Collection[str]
    families: Collection[str]
    arches: Collection[str]
    facts: Collection[str] | None
    checks: Collection[str] | None

    def wrong_with(self, rule: Rule) -> Problems:
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
        yield from _unsourced(rule.sources, self.sources)
        yield from problems(rule.when, facts=self.facts, checks=self.checks, families=self.families)
        yield from self._wrong_with_texts(rule)

    def wrong_with_product(self, product: Product) -> Problems:
        """Yield what is wrong with a card."""
        if product.gfx not in self.arches:
            yield "gfx", f"{product.gfx!r} is not an arch of gpus.toml"

    def wrong_with_wheel(self, wheel: Wheels) -> Problems:
        """Yield what is wrong with a release."""
        yield from _unsourced(wheel.sources, self.sources)
        if not is_range(wheel.torch):
            yield "torch", f"{wheel.torch!r} is not a version range"
        if wheel.python and not is_range(wheel.python):
            yield "python", f"{wheel.python!r} is not a version range"
        for gfx in wheel.arches:
            if gfx not in self.arches:
                yield "arches", f"{gfx!r} is not an arch of gpus.toml"

    def _wrong_with_texts(self, rule: Rule) -> Problems:
        fix = rule.fix
        lines = [("summary", rule.summary)]
        for field in ("commands", "windows", "container"):
            lines += [(f"fix.{field}", line) for line in getattr(fix, field)]
        for field, text in lines:
            for name in PLACEHOLDER.findall(text):
                yield from ((field, problem) for problem in self._unfillable(name, rule))

    def _unfillable(self, name: str, rule: Rule) -> Iterator[str]:
        """Yield why a placeholder would stay empty."""
        if name == "seen":
            if all(leaf.check is None for leaf in leaves(rule.when)):
                yield "{seen} needs a check in when"
        elif name == "set":
            if not any((leaf.fact or "").startswith("variable:") for leaf in leaves(rule.when)):
                yield "{set} needs a variable in when"
        elif self.facts is not None and name not in self.facts:
            yield f"{{{name}}} is not a fact"


def _unsourced(keys: Collection[str], sources: Collection[str]) -> Problems:
    for key in keys:
        if key not in sources:
            yield "sources", f"{key!r} is not in sources.toml"


def _uncancelled(variable: Variable, variables: Collection[str]) -> Problems:
    for other in variable.cancels:
        if other not in variables:
            yield "cancels", f"{other!r} is not in variables.toml"


def _sources(path: Path) -> dict[str, Source]:
    table = _document(path, "sources").content.get("sources", {})
    if not isinstance(table, dict):
        raise KnowledgeError(f"{path.name}: sources: must be a table")
    return {key: _typed(entry, Source, f"{path.name}: {key}") for key, entry in table.items()}


def _rules(folder: Path) -> Iterator[tuple[str, Rule]]:
    try:
        paths = sorted(folder.iterdir())
    except OSError as error:
        raise KnowledgeError(f"{folder.name}: {error.strerror}") from None
    for path in paths:
        if path.suffix in (".toml", ".json"):
            yield from _entries(_document(path, "rule"), "rule", Rule)


def _by_name(
    entries: Iterable[tuple[str, T]],
    name: Callable[[T], str],
    field: str,
    wrong_with: Callable[[T], Problems] = lambda _: (),
) -> dict[str, T]:
    """Return the entries by name; no two have the same."""
    found: dict[str, T] = {}
    for where, entry in entries:
        _refuse(where, wrong_with(entry))
        if name(entry) in found:
            raise KnowledgeError(f"{where}: {field}: taken by another entry")
        found[name(entry)] = entry
    return found


def _checked(
    entries: Iterable[tuple[str, T]], wrong_with: Callable[[T], Problems]
) -> tuple[T, ...]:
    found = []
    for where, entry in entries:
        _refuse(where, wrong_with(entry))
        found.append(entry)
    return tuple(found)


def _refuse(where: str, wrong: Problems) -> None:
    for field, problem in wrong:
        raise KnowledgeError(f"{where}: {field}: {problem}")


def _entries(document: _Document, key: str, kind: type[T]) -> Iterator[tuple[str, T]]:
    """Yield each entry of a list, and what to call it in an error."""
    entries = document.content.get(key, [])
    if not isinstance(entries, list):
        raise KnowledgeError(f"{document.file}: {key}: must be a list of tables")
    for index, entry in enumerate(entries, start=1):
        where = f"{document.file}: {_name(entry, index)}"
        yield where, _typed(entry, kind, where)


class _Document(NamedTuple):
    """One decoded file."""

    file: str
    content: dict[str, Any]


def _document(path: Path, *keys: str) -> _Document:
    """Decode a file; a key that nobody reads is a mistake, such as [[rules]] for [[rule]]."""
    content = _decoded(path)
    for key in content:
        if key not in keys:
            raise KnowledgeError(f"{path.name}: {key}: not one of {', '.join(keys)}")
    return _Document(path.name, content)


def _name(entry: object, index: int) -> str:
    """Call an entry what its author calls it, or by its place."""
    if isinstance(entry, dict):
        for key in ("id", "name", "gfx", "torch"):
            if isinstance(entry.get(key), str):
                return str(entry[key])
    return f"entry {index}"


def _typed(entry: object, kind: type[T], where: str) -> T:
    try:
        return msgspec.convert(entry, kind)
    except msgspec.ValidationError as error:
        raise KnowledgeError(f"{where}: {error}") from None


def _decoded(path: Path) -> dict[str, Any]:
    try:
        content = path.read_bytes()
        if path.suffix == ".json":
            return msgspec.json.decode(content, type=dict[str, Any])
        return parse_toml(content.decode())
    except OSError as error:
        raise KnowledgeError(f"{path.name}: {error.strerror}") from None
    except (ValueError, RecursionError, msgspec.DecodeError) as error:
        raise KnowledgeError(f"{path.name}: {error}") from None
