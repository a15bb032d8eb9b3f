"""Compare wheels.toml and prices.toml with the pages they come from, and write what changed.

    python tools/refresh.py                  show what changed
    python tools/refresh.py --write          and write it into the tables
    python tools/refresh.py --pages FOLDER   read saved pages instead of the network
    python tools/refresh.py --save FOLDER    keep what was fetched

For maintainers, with network access; a workflow runs it every week. What only a person can decide
is printed and not written: a release that no row has, an address that no longer answers, a pinned
build that is gone. The exit code is 1 if a page could not be read. Not part of the package.
"""

from __future__ import annotations

import argparse
import csv
import fnmatch
import json
import re
import sys
import tomllib
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, date, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

DATA = Path(__file__).parents[1] / "packages/rocsteady_knowledge/src/rocsteady_knowledge/data"
PYTORCH = "https://download.pytorch.org/whl/torch/"
RELEASES = {
    "PyTorch": "https://api.github.com/repos/pytorch/pytorch/releases?per_page=20",
    "ROCm": "https://api.github.com/repos/ROCm/ROCm/releases?per_page=20",
    "TheRock": "https://api.github.com/repos/ROCm/TheRock/releases?per_page=20",
}
CATALOG = (
    "https://raw.githubusercontent.com/skypilot-org/skypilot-catalog/master/catalogs/v8/{}/vms.csv"
)
CATALOG_DATE = "https://api.github.com/repos/skypilot-org/skypilot-catalog/commits?per_page=1&path=catalogs/v8/{}/vms.csv"
WHEEL = re.compile(r"torch-([^-]+)-cp3(\d+)-cp3(\d+)-(.+)\.whl")
DEVICE = re.compile(r"amd[-_]torch[-_]device[-_](gfx[0-9a-f]{3,4})\b")
TIMEOUT = 60  # seconds for one page

Fetch = Callable[[str], str]
Row = dict[str, Any]


class Wheel(NamedTuple):
    version: Version  # with the local part: 2.14.1+rocm7.2
    python: int  # 12 of 3.12
    system: str  # linux or windows

    @property
    def rocm(self) -> str:
        """10.1.0 of +rocm10.1.0 and of +rocm10.1.0a20261016; "" of a build for another GPU."""
        found = re.match(r"rocm(\d+(?:\.\d+)*)", self.version.local or "")
        return found[1] if found else ""


class Change(NamedTuple):
    table: str  # "wheels.toml"
    row: int  # which [[...]] of the file, from 0
    field: str
    value: object

    def __str__(self) -> str:
        return f"{self.field} = {to_toml(self.value)}"


class Page(HTMLParser):
    """The names and targets of a page's links, as pip's simple indexes have them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            target = dict(attrs).get("href") or ""
            self.links.append(unquote(target.split("#")[0].rstrip("/")).rsplit("/", 1)[-1])


def wheels_of(page: str) -> list[Wheel]:
    """Return the ROCm builds of torch that an index lists, for plain CPython."""
    found = []
    for name in Page(page).links:
        if match := WHEEL.fullmatch(name):
            version, python, abi, platform = match.groups()
            try:
                wheel = Wheel(
                    Version(version), int(python), "windows" if "win" in platform else "linux"
                )
            except InvalidVersion:
                continue
            if wheel.rocm and python == abi:
                found.append(wheel)
    return found


def _newest(wheels: Iterable[Wheel], *, pre: bool = False) -> Version | None:
    return max((it.version for it in wheels if pre or not it.version.is_prerelease), default=None)


def minor(version: Version | str) -> str:
    return ".".join(str(version).split("+")[0].split(".")[:2])


def version_range(minors: Iterable[str]) -> str:
    versions = sorted(Version(minor) for minor in minors)
    return f">={versions[0]},<{versions[-1].major}.{versions[-1].minor + 1}"


def release_changes(row: Row, wheels: list[Wheel], today: str) -> Iterator[tuple[str, object]]:
    """Yield the new fields of one row of pytorch.org's releases."""
    here = [
        it
        for it in wheels
        if it.rocm == row["rocm"] and Version(it.version.public) in SpecifierSet(row["torch"])
    ]
    newest = _newest(here)
    if newest is None:
        return
    pythons = [f"3.{it.python}" for it in here if it.version == newest]
    yield "latest", newest.public
    yield "python", version_range(pythons)
    yield "checked", today


def index_changes(
    row: Row, wheels: list[Wheel], arches: Callable[[Version], list[str]], today: str
) -> Iterator[tuple[str, object]]:
    """Yield the new fields of one of AMD's indexes; with a pin, only those of that ROCm."""
    nightly = "nightly" in row["id"]
    pin = row.get("pin", "")
    if pin:
        here = [it for it in wheels if minor(it.rocm) == row["rocm"]]
        if not nightly:
            torch = minor(pin.removeprefix("=="))
            here = [it for it in here if minor(it.version) == torch]
    else:
        here = wheels
    newest = _newest(here, pre=nightly)
    if newest is None:
        return
    if pin and not nightly:
        yield "pin", f"=={newest}"
    if not pin:
        rocm = next(minor(it.rocm) for it in wheels if it.version == newest)
        yield "rocm", rocm
        same = [it for it in wheels if minor(it.rocm) == rocm]
        yield "torch", version_range({minor(it.version) for it in same})
        if built := arches(newest):
            yield "arches", built
    yield "python", version_range({f"3.{it.python}" for it in here if it.version == newest})
    yield "checked", today


def unlisted(rows: list[Row], wheels: list[Wheel]) -> Iterator[str]:
    """Yield releases that are newer than all that the table has; a person adds them."""
    newest_torch = max(Version(row["latest"]) for row in rows)
    newest_rocm = max(Version(row["rocm"]) for row in rows)
    pairs = {(minor(it.version), it.rocm) for it in wheels if not it.version.is_prerelease}
    known = [(SpecifierSet(row["torch"]), row["rocm"]) for row in rows]
    for torch, rocm in sorted(pairs, key=lambda pair: (Version(pair[0]), Version(pair[1]))):
        listed = any(rocm == its_rocm and f"{torch}.0" in its for its, its_rocm in known)
        newer = Version(torch) >= Version(minor(newest_torch)) or Version(rocm) > newest_rocm
        if newer and not listed:
            yield f"no row for torch {torch} with ROCm {rocm}: add one with the GPUs of its build"


def prices_of(row: Row, catalog: str) -> list[float]:
    """Return the prices of one offer in SkyPilot's catalog.

    Two cards can have the same name there, such as H100, and then differ in the instance type.
    """
    return [
        float(line["Price"])
        for line in csv.DictReader(catalog.splitlines())
        if line["AcceleratorName"] == row["sky"]
        and fnmatch.fnmatchcase(line["InstanceType"], row.get("instance", "*"))
        and line["AcceleratorCount"] in {"1", "1.0"}
        and line["Price"]
    ]


def price_changes(row: Row, catalog: str, day: str) -> Iterator[tuple[str, object]]:
    """Yield the price of one offer in SkyPilot's catalog, if that is newer than ours."""
    prices = prices_of(row, catalog)
    if prices and date.fromisoformat(day) > row["as_of"]:
        yield "dollars", min(prices)
        yield "as_of", date.fromisoformat(day)
        yield "source", f"skypilot-catalog-{row['infra']}"


class Refresh:
    """One look at all pages. ``notes`` are for a person; ``failed`` pages could not be read."""

    def __init__(self, folder: Path, fetch: Fetch, today: str) -> None:
        self.folder, self.today = folder, today
        self._fetch = fetch
        self.notes: list[str] = []
        self.failed: list[str] = []

    def changes(self) -> list[Change]:
        return [*self._wheels(), *self._prices()]

    def page(self, address: str) -> str:
        try:
            return self._fetch(address)
        except (OSError, ValueError) as error:
            if address not in " ".join(self.failed):
                self.failed.append(f"{address}: {error}")
            return ""

    def _wheels(self) -> Iterator[Change]:
        rows = rows_of(self.folder / "wheels.toml")
        releases = [row for name, row in rows if name == "release"]
        wheels = wheels_of(self.page(PYTORCH))
        if wheels:
            self.notes += (f"wheels.toml: {note}" for note in unlisted(releases, wheels))
        for number, (name, row) in enumerate(rows):
            if name == "release":
                listed = wheels
                found = release_changes(row, listed, self.today)
            else:
                address = row["address"]
                listed = wheels_of(self.page(f"{address}torch/"))
                found = index_changes(row, listed, self._arches(address), self.today)
            fields = [*found]
            if listed and not fields:
                what = row.get("id") or f"torch {row['torch']} with ROCm {row['rocm']}"
                self.notes.append(f"wheels.toml: {what}: its page lists no such build any more")
            yield from _different("wheels.toml", number, row, fields)
        self.notes += self._versions(releases)

    def _arches(self, address: str) -> Callable[[Version], list[str]]:
        def built(version: Version) -> list[str]:
            devices = {match[0]: match[1] for match in DEVICE.finditer(self.page(address))}
            return [
                gfx
                for package, gfx in sorted(devices.items(), key=lambda it: (len(it[1]), it[1]))
                if str(version) in unquote(self.page(f"{address}{package.replace('_', '-')}/"))
            ]

        return built

    def _versions(self, releases: list[Row]) -> Iterator[str]:
        """Yield releases that no entry speaks of yet."""
        ours = {
            "PyTorch": max(Version(row["latest"]) for row in releases),
            "ROCm": max(
                Version(row["rocm"])
                for _, row in rows_of(self.folder / "wheels.toml")
                if "nightly" not in row.get("id", "")
            ),
        }
        for project, address in RELEASES.items():
            listed = json.loads(self.page(address) or "[]")
            tags = [it["tag_name"] for it in listed if not it["prerelease"] and not it["draft"]]
            numbers = [re.search(r"\d+\.\d+(?:\.\d+)?", tag) for tag in tags]
            newest = max((Version(match[0]) for match in numbers if match), default=None)
            known = ours["PyTorch" if project == "PyTorch" else "ROCm"]
            if newest and newest.release[:2] > known.release[:2]:
                yield f"{project} {newest} is out; the newest that wheels.toml has is {known}"

    def _prices(self) -> Iterator[Change]:
        for number, (_, row) in enumerate(rows_of(self.folder / "prices.toml")):
            if not row.get("sky"):
                continue
            infra = row["infra"]
            catalog = self.page(CATALOG.format(infra))
            commits = json.loads(self.page(CATALOG_DATE.format(infra)) or "[]")
            if catalog and commits:
                if not prices_of(row, catalog):
                    self.notes.append(f"prices.toml: {row['id']}: no such instance is listed")
                day = commits[0]["commit"]["committer"]["date"][:10]
                found = [*price_changes(row, catalog, day)]
                yield from _different("prices.toml", number, row, found)


def _different(
    table: str, number: int, row: Row, fields: list[tuple[str, object]]
) -> Iterator[Change]:
    for field, value in fields:
        if row.get(field) != value:
            yield Change(table, number, field, value)


def rows_of(path: Path) -> list[tuple[str, Row]]:
    """Return the name and the fields of each [[...]] of a file, in its order."""
    return [
        (block.split("]]")[0], next(iter(tomllib.loads(f"[[{block}").values()))[0])
        for block in blocks_of(path.read_text(encoding="utf-8"))[1:]
    ]


def blocks_of(text: str) -> list[str]:
    return re.split(r"^\[\[", text, flags=re.MULTILINE)


def to_toml(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(to_toml, value))}]"
    if isinstance(value, float):
        return f"{value:.2f}"
    return value.isoformat() if isinstance(value, date) else json.dumps(value)


def write(folder: Path, changes: Iterable[Change]) -> None:
    """Write new values into the lines of the tables; comments and the order of fields stay."""
    texts: dict[str, list[str]] = {}
    for change in changes:
        path = folder / change.table
        blocks = texts.setdefault(change.table, blocks_of(path.read_text(encoding="utf-8")))
        line = f"{change.field} = {to_toml(change.value)}"
        block = blocks[change.row + 1]
        edited, count = re.subn(
            rf"^{change.field} = .*$", line.replace("\\", r"\\"), block, count=1, flags=re.MULTILINE
        )
        if not count:
            head, first, rest = block.split("\n", 2)
            edited = f"{head}\n{first}\n{line}\n{rest}"
        blocks[change.row + 1] = edited
    for table, blocks in texts.items():
        (folder / table).write_text("[[".join(blocks), encoding="utf-8")


def from_network(address: str) -> str:
    request = urllib.request.Request(
        address, headers={"User-Agent": "rocsteady-refresh", "Accept": "text/html, */*"}
    )
    with urllib.request.urlopen(request, timeout=TIMEOUT) as reply:
        return str(reply.read().decode("utf-8", "replace"))


def saved_at(folder: Path, address: str) -> Path:
    """Return the file of a saved page."""
    return folder / quote(address.removeprefix("https://"), safe="")


def main(arguments: list[str]) -> int:
    """Print what changed; return 1 if a page could not be read."""
    parser = argparse.ArgumentParser(description="Compare the tables with the pages.")
    parser.add_argument("--write", action="store_true", help="write it into the tables")
    parser.add_argument("--pages", type=Path, metavar="FOLDER", help="read saved pages")
    parser.add_argument("--save", type=Path, metavar="FOLDER", help="keep what was fetched")
    parser.add_argument("--data", type=Path, default=DATA, help="the folder of the tables")
    options = parser.parse_args(arguments)
    pages: dict[str, str] = {}

    def fetch(address: str) -> str:
        if address not in pages:
            if options.pages:
                pages[address] = saved_at(options.pages, address).read_text(encoding="utf-8")
            else:
                pages[address] = from_network(address)
            if options.save:
                options.save.mkdir(parents=True, exist_ok=True)
                saved_at(options.save, address).write_text(pages[address], encoding="utf-8")
        return pages[address]

    refresh = Refresh(options.data, fetch, datetime.now(tz=UTC).date().isoformat())
    changes = refresh.changes()
    rows = {table: rows_of(options.data / table) for table in {it.table for it in changes}}
    for change in changes:
        row = rows[change.table][change.row][1]
        name = row.get("id") or f"torch {row['torch']}, ROCm {row['rocm']}"
        old = to_toml(row[change.field]) if change.field in row else "nothing"
        sys.stdout.write(f"{change.table}: {name}: {change}  (was {old})\n")
    for note in refresh.notes:
        sys.stdout.write(f"for a person: {note}\n")
    for failure in refresh.failed:
        sys.stdout.write(f"not read: {failure}\n")
    if options.write:
        write(options.data, changes)
    return int(bool(refresh.failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
