"""Compare what rocsteady takes for granted of PyTorch with its releases, without importing torch.

    python tools/torch_names.py                  the newest patch of each release from 2.8 on
    python tools/torch_names.py 2.15.0           one release
    python tools/torch_names.py torch.whl        a wheel on disk, or a folder that has torch/
    python tools/torch_names.py --write          and write the table of the docs

For maintainers, at each release of PyTorch. tools/torch_names.toml lists the names. Of a wheel of
half a gigabyte it fetches the few files that have them, about 5 MB. The exit code is 1 if a release
lacks a name that the table says it has. Not part of the package.
"""

from __future__ import annotations

import argparse
import ast
import fnmatch
import functools
import io
import re
import sys
import tomllib
import urllib.request
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast
from urllib.parse import urljoin

from packaging.specifiers import SpecifierSet
from packaging.version import Version

TABLE = Path(__file__).with_suffix(".toml")
PAGE = Path(__file__).parents[1] / "docs/reference/torch-versions.md"
BEGIN, END = "<!-- written by tools/torch_names.py -->", "<!-- end of what it writes -->"
INDEX = "https://pypi.org/simple/torch/"
FIRST = Version("2.8")
WHEEL = re.compile(r"torch-([^-]+)-(?:\d+-)?cp311-cp311-manylinux\w*_x86_64\.whl")
TIMEOUT = 60  # seconds for one request
BLOCK = 256 * 1024  # bytes of one request

Function = (ast.FunctionDef, ast.AsyncFunctionDef)


class Use(NamedTuple):
    """One thing that rocsteady does, and the names that it needs."""

    what: str
    by: str
    names: Mapping[str, list[str]]  # by file of the wheel
    torch: SpecifierSet
    without: str


class Release(Protocol):
    """The files of one PyTorch."""

    version: str

    def names(self) -> Iterable[str]: ...
    def read(self, name: str, /) -> bytes: ...


class Archive:
    def __init__(self, stream: Any, version: str) -> None:  # noqa: ANN401 - a path or a stream
        self.version = version
        self._archive = zipfile.ZipFile(stream)

    def names(self) -> Iterable[str]:
        return self._archive.namelist()

    def read(self, name: str) -> bytes:
        return self._archive.read(name)


class Folder:
    def __init__(self, path: Path) -> None:
        self._path = path
        text = (path / "torch/version.py").read_text()
        found = re.search(r"^__version__.*?['\"]([^'\"]+)", text, re.MULTILINE)
        self.version = found[1] if found else str(path)

    def names(self) -> Iterator[str]:
        for path in (self._path / "torch").rglob("*"):
            yield path.relative_to(self._path).as_posix()

    def read(self, name: str) -> bytes:
        return (self._path / name).read_bytes()


class Download(io.RawIOBase):
    """A file on a server, of which only what is read is fetched."""

    def __init__(self, address: str) -> None:
        self._address, self._at = address, 0
        with urllib.request.urlopen(_request(address, method="HEAD"), timeout=TIMEOUT) as answer:
            self._size = int(answer.headers["content-length"])

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0, /) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def readinto(self, buffer: Any, /) -> int:  # noqa: ANN401 - a buffer
        end = min(self._at + len(buffer), self._size)
        if end <= self._at:
            return 0
        request = _request(self._address)
        request.add_header("Range", f"bytes={self._at}-{end - 1}")
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            if answer.status != 206:  # noqa: PLR2004 - a part
                raise OSError(f"{self._address}: the server sends no parts of files")
            content = answer.read()
        buffer[: len(content)] = content
        self._at += len(content)
        return len(content)


def _request(address: str, method: str = "GET") -> urllib.request.Request:
    return urllib.request.Request(address, method=method)


def wheels() -> dict[Version, str]:
    """Return the addresses of the wheels of each release from the first on."""
    with urllib.request.urlopen(_request(INDEX), timeout=TIMEOUT) as answer:
        links = re.findall(r'href="([^"#]+)[^"]*"[^>]*>([^<]+)<', answer.read().decode())
    found = {
        Version(match[1]): urljoin(INDEX, address)
        for address, name in links
        if (match := WHEEL.fullmatch(name))
    }
    return {version: found[version] for version in sorted(found) if version >= FIRST}


def newest(versions: Iterable[Version]) -> list[Version]:
    """Keep the last patch of each release."""
    return sorted({(each.major, each.minor): each for each in sorted(versions)}.values())


def uses(text: str) -> list[Use]:
    return [
        Use(
            entry["what"],
            entry["by"],
            entry["in"],
            SpecifierSet(entry.get("torch", "")),
            entry.get("without", ""),
        )
        for entry in tomllib.loads(text)["use"]
    ]


def missing(use: Use, release: Release) -> list[str]:
    """Return what a release lacks of what is taken for granted."""
    there = [*release.names()]
    problems = []
    for pattern, names in use.names.items():
        files = sorted(fnmatch.filter(there, pattern)) if "*" in pattern else [pattern]
        sources = [release.read(file).decode() for file in files if file in there]
        if not sources:
            problems.append(f"{pattern} does not exist")
        for name in names if sources else ():
            found = [problem(name, source) for source in sources]
            if "" not in found:
                problems.append(f"{pattern}: {found[0]}")
    return problems


def problem(name: str, source: str) -> str:
    """Return what is wrong with one name in the text of a file; "" if nothing is."""
    if name.startswith('"'):
        return "" if name[1:-1] in source else f"does not contain {name}"
    match = re.fullmatch(r"([\w.]+)(?:\((.*)\)|!(.*))?", name)
    if match is None:
        raise SystemExit(f"{TABLE.name}: cannot read {name!r}")
    path, parameters, abstract = match.groups()
    nodes: list[ast.AST] = [_parsed(source)]
    for part in path.split("."):
        nodes = [found for node in nodes for found in defined(node, part)]
    if not nodes:
        return f"has no {path}"
    if abstract is not None:
        return _unknown_abstract(nodes, set(abstract.split(",")), path)
    if parameters is not None:
        found = [_wrong_call(node, parameters) for node in nodes]
        return "" if "" in found else f"{path}: {found[0]}"
    return ""


@functools.lru_cache(maxsize=8)
def _parsed(source: str) -> ast.Module:
    return ast.parse(source)


def defined(scope: ast.AST, name: str) -> Iterator[ast.AST]:
    """Find what a module or a class calls so, below ``if`` and ``try`` too."""
    inside = [*ast.iter_child_nodes(scope)]
    while inside:
        node = inside.pop()
        if isinstance(node, (*Function, ast.ClassDef)):
            if node.name == name:
                yield node
            elif isinstance(scope, ast.ClassDef) and isinstance(node, Function):
                yield from (each for each in ast.walk(node) if _is_own(each, name))
        elif name in _assigned(node):
            yield node
        else:
            inside += ast.iter_child_nodes(node)


def _is_own(node: ast.AST, name: str) -> bool:
    """Return whether this is ``self.name``, as a method sets it."""
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and node.attr == name
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    )


def _assigned(node: ast.AST) -> set[str]:
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return {alias.asname or alias.name.partition(".")[0] for alias in node.names}
    targets: list[Any] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign):
        targets = [node.target]
    return {
        each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)
    }


def _wrong_call(node: ast.AST, wanted: str) -> str:
    """Return why a call with these parameters would fail."""
    names = [name.strip() for name in wanted.split(",") if name.strip()]
    first, last = (
        (names[: names.index("*")], names[names.index("*") + 1 :]) if "*" in names else (names, [])
    )
    if isinstance(node, ast.ClassDef):
        made = [each for each in defined(node, "__init__") if isinstance(each, Function)]
        if not made:
            return _wrong_order(_fields(node), first, last)
        node = made[0]
    if not isinstance(node, Function):
        return "is not a function"
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    required = [True] * (len(positional) - len(arguments.defaults))
    known = {
        argument.arg: needed
        for argument, needed in zip(
            positional, [*required, *([False] * len(positional))], strict=False
        )
        if argument.arg not in ("self", "cls")
    }
    by_name = {
        argument.arg: default is None
        for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    }
    if arguments.kwarg is not None:
        last = [name for name in last if name in known]
    return _wrong_order(known, first, last, by_name)


def _fields(node: ast.ClassDef) -> dict[str, bool]:
    """Return the fields of a dataclass or a NamedTuple, and whether each must be given."""
    return {
        each.target.id: each.value is None
        for each in node.body
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    }


def _wrong_order(
    known: Mapping[str, bool],
    first: list[str],
    last: list[str],
    by_name: Mapping[str, bool] | None = None,
) -> str:
    every = {**known, **(by_name or {})}
    if [*known][: len(first)] != first:
        return f"takes ({', '.join(known)}), not ({', '.join(first)})"
    if lost := [name for name in last if name not in every]:
        return f"does not take {', '.join(lost)}"
    if more := [name for name, needed in every.items() if needed and name not in (*first, *last)]:
        return f"also requires {', '.join(more)}"
    return ""


def _unknown_abstract(nodes: list[ast.AST], ours: set[str], path: str) -> str:
    methods = [
        each for node in nodes for each in getattr(node, "body", ()) if isinstance(each, Function)
    ]
    abstract = {
        each.name
        for each in methods
        if any("abstract" in ast.unparse(decorator) for decorator in each.decorator_list)
    }
    if more := abstract - ours:
        return f"{path} also requires {', '.join(sorted(more))}"
    if lost := ours - {each.name for each in methods}:
        return f"{path} has no {', '.join(sorted(lost))}"
    return ""


class Result(NamedTuple):
    version: str
    lacks: dict[str, list[str]]  # by what rocsteady does


def compare(table: list[Use], release: Release) -> Result:
    return Result(release.version, {use.what: missing(use, release) for use in table})


def unexpected(table: list[Use], results: list[Result]) -> list[str]:
    """Return what differs from the table: what a release lacks, and what it has got since."""
    found = []
    for use in table:
        for result in results:
            is_expected = use.torch.contains(Version(result.version), prereleases=True)
            lacks = result.lacks[use.what]
            if is_expected:
                found += [f"{result.version}: {use.what}: {each}" for each in lacks]
            elif not lacks:
                found.append(f"{result.version}: {use.what}: is there, and torch says {use.torch}")
    return found


def page(table: list[Use], results: list[Result], today: str) -> str:
    """Write the part of the page that this program knows."""
    heads = [_short(result.version) for result in results]
    versions = ", ".join(result.version for result in results)
    lines = [
        f"Checked on {today} against the files of torch {versions}.",
        "",
        f"| what rocsteady relies on | {' | '.join(heads)} |",
        f"|---|{'---|' * len(heads)}",
    ]
    for use in table:
        cells = ["no" if result.lacks[use.what] else "yes" for result in results]
        lines.append(f"| {use.what} | {' | '.join(cells)} |")
    lines += ["", "Where it says no:", ""]
    for use in table:
        lacking = [_short(result.version) for result in results if result.lacks[use.what]]
        if lacking:
            lines.append(f"- {use.what}, {', '.join(lacking)}: {use.without or 'not handled'}.")
    return "\n".join(lines)


def _short(version: str) -> str:
    return ".".join(version.split(".")[:2])


def releases(wanted: list[str]) -> Iterator[Release]:
    paths = [Path(each) for each in wanted if Path(each).exists()]
    for path in paths:
        named = re.match(r"torch-([^-]+)-", path.name)
        yield Folder(path) if path.is_dir() else Archive(path, named[1] if named else path.name)
    versions = [Version(each) for each in wanted if not Path(each).exists()]
    if not versions and paths:
        return
    known = wheels()
    for version in versions or newest(known):
        if version not in known:
            raise SystemExit(f"there is no wheel of torch {version} for Python 3.11 on Linux")
        stream = io.BufferedReader(cast("io.RawIOBase", Download(known[version])), BLOCK)
        yield Archive(stream, str(version))


def main(arguments: list[str] | None = None, say: Callable[[str], object] = print) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("torch", nargs="*", help="versions, wheels or folders")
    parser.add_argument("--write", action="store_true", help="write the table of the docs")
    options = parser.parse_args(arguments)
    table = uses(TABLE.read_text(encoding="utf-8"))
    results = []
    for release in releases(options.torch):
        results.append(compare(table, release))
        lacking = sum(map(bool, results[-1].lacks.values()))
        say(f"torch {release.version}: has {len(table) - lacking} of {len(table)}")
    differences = unexpected(table, results)
    for difference in differences:
        say(difference)
    if options.write:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        after = rest.partition(END)[2]
        text = page(table, results, datetime.now(UTC).date().isoformat())
        PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
