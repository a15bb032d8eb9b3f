"""Reads the data of ``rocsteady_knowledge``.

The data is a package of its own and may be newer than this program. A field, an entry or a table
that is not understood here is left out and listed in ``DataFolder.ignored``; the others count.
Structs that decide whether something applies forbid unknown fields, so that a condition which is
only half understood leaves out its whole entry.

People write TOML; a large base comes as JSON of the same shape, which is read many times faster.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
from packaging.version import Version

from rocsteady.doctor.knowledge.hardware import (
    Arch,
    Product,
    Variable,
    WheelIndex,
    WheelRelease,
    Wheels,
)
from rocsteady.doctor.knowledge.rules import PLACEHOLDER, Rule, is_range, leaves, problems
from rocsteady.doctor.knowledge.values import Area, Fix, Source
from rocsteady.errors import KnowledgeError
from rocsteady.model import Value
from rocsteady.toml import parse_toml
from rocsteady.typed_values import convert, decode
from rocsteady_knowledge import VERSION

DATA = Path(str(files("rocsteady_knowledge"))) / "data"
SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
BLANK = re.compile(r"<[A-Za-z][^<>|&;]*>|\.\.\.(?=\s|$)")  # in a command: left to the person
LOWEST_END = re.compile(r"<(\d+)\.(\d+)")
NESTED = {"fix": Fix, "advice": Fix}  # fields that are tables with fields of their own

T = TypeVar("T", bound=Value)
Problems = Iterable[tuple[str, str]]  # the field, and a sentence


class Knowledge(Value, frozen=True, kw_only=True):
    rules: dict[str, Rule]
    sources: dict[str, Source]
    variables: dict[str, Variable]
    arches: dict[str, Arch]
    products: tuple[Product, ...]
    wheels: tuple[WheelRelease, ...]
    indexes: tuple[WheelIndex, ...] = ()
    kernel: str = "0"  # the newest Linux that any entry speaks of
    version: str = VERSION  # of the data package
    ignored: tuple[str, ...] = ()  # as "file: entry: problem"

    def product(self, device: int | None, revision: int | None) -> Product | None:
        """Return the card with this PCI device; the one with its revision if there is one."""
        same = [product for product in self.products if product.device == device]
        exact = [product for product in same if product.revision == revision]
        return next(iter([*exact, *(found for found in same if found.revision is None)]), None)

    def newest_torch(self) -> Version:
        rows = (*self.wheels, *(it for it in self.indexes if not it.pre))
        ends = (LOWEST_END.search(wheel.torch) for wheel in rows)
        last = max(((int(end[1]), int(end[2])) for end in ends if end), default=(0, 1))
        return Version(f"{last[0]}.{last[1] - 1}")

    def newest_rocm(self) -> Version:
        rows = (*self.wheels, *self.indexes)
        return max((Version(wheel.rocm) for wheel in rows), default=Version("0"))


# By the files of rules; those about the GPUs are not listed.
AREAS = {
    "kernel": Area.DRIVER,
    "windows": Area.DRIVER,
    "wsl": Area.DRIVER,
    "limits": Area.MEMORY,
    "allocator": Area.SETTINGS,
    "variables": Area.SETTINGS,
    "libraries": Area.PYTORCH,
    "miopen": Area.PYTORCH,
    "wheels": Area.PYTORCH,
}


class Document(NamedTuple):
    file: str
    content: dict[str, Any]


class DataFolder:
    """The data below a folder. What is not understood is left out and listed in ``ignored``."""

    def __init__(self, folder: Path = DATA) -> None:
        self.folder = folder
        self.ignored: list[str] = []  # "file: entry: problem"

    @cached_property
    def sources(self) -> dict[str, Source]:
        return self.source_table(self.document("sources.toml", "sources"))

    def document(self, path: str | Path, *tables: str) -> Document:
        """Decode a file; a table that nobody reads is ignored with all its entries."""
        path = self.folder / path
        content = decoded(path)
        for key, value in content.items():
            if key not in tables:
                count = len(value) if isinstance(value, list | dict) else 1
                self.ignored += [f"{path.name}: {key}: not one of {', '.join(tables)}"] * count
        return Document(path.name, content)

    def documents(self, folder: str, table: str) -> Iterator[Document]:
        try:
            paths = sorted((self.folder / folder).iterdir())
        except OSError as error:
            raise KnowledgeError(f"{folder}: {error.strerror}") from None
        for path in paths:
            if path.suffix in (".toml", ".json"):
                yield self.document(path, table)

    def entries(self, document: Document, table: str, kind: type[T]) -> Iterator[tuple[str, T]]:
        """Yield each entry of a table that is understood, and what to call it in an error."""
        entries = document.content.get(table, [])
        if not isinstance(entries, list):
            self.ignored.append(f"{document.file}: {table}: must be a list of tables")
            return
        for index, entry in enumerate(entries, start=1):
            where = f"{document.file}: {_name(entry, index)}"
            typed = self.typed(entry, kind, where)
            if typed is not None:
                yield where, typed

    def typed(self, entry: object, kind: type[T], where: str) -> T | None:
        """Return an entry as its type, without the fields that this type does not have."""
        try:
            typed = convert(entry, kind)
        except msgspec.ValidationError as error:
            self.ignored.append(f"{where}: {error}")
            return None
        self.ignored += [f"{where}: {field}: not known" for field in _unknown_fields(entry, kind)]
        return typed

    def named(
        self,
        entries: Iterable[tuple[str, T]],
        field: str,
        wrong_with: Callable[[T], Problems] = lambda _: (),
    ) -> dict[str, T]:
        """Return the good entries by name; of two with the same name, the first."""
        found: dict[str, T] = {}
        for where, entry in entries:
            name = getattr(entry, field)
            taken = [(field, "taken by another entry")] if name in found else []
            if self.accepts(where, [*wrong_with(entry), *taken]):
                found[name] = entry
        return found

    def listed(
        self,
        entries: Iterable[tuple[str, T]],
        wrong_with: Callable[[T], Problems] = lambda _: (),
    ) -> tuple[T, ...]:
        return tuple(entry for where, entry in entries if self.accepts(where, wrong_with(entry)))

    def accepts(self, where: str, wrong: Problems) -> bool:
        """Note the first problem of an entry; return whether there is none."""
        for field, problem in wrong:
            self.ignored.append(f"{where}: {field}: {problem}")
            return False
        return True

    def source_table(self, document: Document) -> dict[str, Source]:
        table = document.content.get("sources", {})
        if not isinstance(table, dict):
            self.ignored.append(f"{document.file}: sources: must be a table")
            return {}
        typed = {
            key: self.typed(entry, Source, f"{document.file}: {key}")
            for key, entry in table.items()
        }
        return {key: source for key, source in typed.items() if source is not None}


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
    data = DataFolder(folder)
    gpus = data.document("gpus.toml", "arch", "product")
    releases = data.document("wheels.toml", "release", "index")
    kernel = data.document("coverage.toml", "kernel").content.get("kernel", "0")
    arches = data.named(
        data.entries(gpus, "arch", Arch),
        "gfx",
        lambda it: unsourced(it.sources, data.sources),
    )
    variables = data.named(
        data.entries(data.document("variables.toml", "variable"), "variable", Variable), "name"
    )
    rules = [
        (where, msgspec.structs.replace(rule, area=AREAS.get(Path(document.file).stem, rule.area)))
        for document in data.documents("rules", "rule")
        for where, rule in data.entries(document, "rule", Rule)
    ]
    known = _References(
        data.sources,
        arches,
        {arch.family for arch in arches.values()},
        variables,
        None if facts is None else {*facts, *(f"variable:{name}" for name in variables)},
        checks,
    )
    good_variables = {
        name: variable
        for name, variable in variables.items()
        if data.accepts(f"variables.toml: {name}", known.wrong_with_variable(variable))
    }
    good_rules = data.named(rules, "id", known.wrong_with)
    wheels = data.entries(releases, "release", WheelRelease)
    indexes = data.entries(releases, "index", WheelIndex)
    return Knowledge(
        rules=good_rules,
        sources=dict(known.sources),
        variables=good_variables,
        arches=arches,
        products=data.listed(data.entries(gpus, "product", Product), known.wrong_with_product),
        wheels=tuple(data.named(wheels, "title", known.wrong_with_wheel).values()),
        indexes=tuple(data.named(indexes, "id", known.wrong_with_wheel).values()),
        kernel=str(kernel),
        ignored=tuple(data.ignored),
    )


class _References(NamedTuple):
    """The names that an entry may refer to. ``facts`` and ``checks``: None is not checked."""

    sources: Mapping[str, Source]
    arches: Collection[str]
    families: Collection[str]
    variables: Collection[str]
    facts: Collection[str] | None
    checks: Collection[str] | None

    def wrong_with(self, rule: Rule) -> Problems:
        """Yield what is wrong with a rule: the field, and a sentence."""
        if not rule.fix.text.strip():
            yield "fix.text", "empty"
        yield from unsourced(rule.sources, self.sources)
        yield from problems(rule.when, facts=self.facts, checks=self.checks, families=self.families)
        yield from self._wrong_with_texts(rule)
        yield from blanks(rule.fix)

    def wrong_with_variable(self, variable: Variable) -> Problems:
        yield from unsourced(variable.sources, self.sources)
        for other in variable.cancels:
            if other not in self.variables:
                yield "cancels", f"{other!r} is not in variables.toml"

    def wrong_with_product(self, product: Product) -> Problems:
        if product.gfx not in self.arches:
            yield "gfx", f"{product.gfx!r} is not an arch of gpus.toml"

    def wrong_with_wheel(self, wheel: Wheels) -> Problems:
        yield from unsourced(wheel.sources, self.sources)
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


def blanks(fix: Fix | None) -> Problems:
    """Yield the commands that cannot be typed as they are: something in them is left open."""
    for step in (fix, *fix.then) if fix is not None else ():
        for field in ("commands", "windows", "container", "check"):
            for command in getattr(step, field, ()):
                if found := BLANK.search(command):
                    yield f"fix.{field}", f"{found[0]} is left open: write an example, and say so"


def unsourced(keys: Iterable[str], sources: Collection[str]) -> Problems:
    """Yield the sources that an entry names and that do not exist."""
    for key in keys:
        if key not in sources:
            yield "sources", f"{key!r} is not in sources.toml"


def _unknown_fields(entry: object, kind: type[Value]) -> Iterator[str]:
    if isinstance(entry, dict):
        for field, value in entry.items():
            if field not in kind.__struct_encode_fields__:
                yield field
            elif field in NESTED:
                yield from (f"{field}.{deeper}" for deeper in _unknown_fields(value, NESTED[field]))


def _name(entry: object, index: int) -> str:
    """Call an entry what its author calls it, or by its place."""
    if isinstance(entry, dict):
        for key in ("id", "name", "gfx", "torch"):
            if isinstance(entry.get(key), str):
                return str(entry[key])
    return f"entry {index}"


def decoded(path: Path) -> dict[str, Any]:
    try:
        content = path.read_bytes()
        if path.suffix == ".json":
            return decode(content, type=dict[str, Any])
        return parse_toml(content.decode())
    except OSError as error:
        raise KnowledgeError(f"{path.name}: {error.strerror}") from None
    except (ValueError, RecursionError, msgspec.DecodeError) as error:
        raise KnowledgeError(f"{path.name}: {error}") from None
