"""What the programs watch_*.py share: pages, the knowledge, what they saw, and what is open.

    python tools/watch_NAME.py                  show what is new since the last look
    python tools/watch_NAME.py --write          and remember it, so that a second look shows nothing
    python tools/watch_NAME.py --pages FOLDER   read saved pages instead of the network

A line is open as long as it is true of the tables, or until a person names it, or the number of
its issue, under [left_out] of upstream.toml with the reason; what differs from the last look stays
until a person deletes it. The exit code is 1 if a page could not be read. Not part of the package.
"""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from refresh import DATA, blocks_of, from_network, saved_at, to_toml

SEEN = Path(__file__).with_name("watch_seen.json")


class Watch:
    """One look at what is upstream; ``holds`` and ``differs`` collect what it finds."""

    def __init__(self, name: str, options: argparse.Namespace) -> None:
        self.name, self.data, self.args = name, options.data, options.what
        self.writes: bool = options.write
        self.holds: list[str] = []
        self.differs: list[str] = []
        self.titles: dict[str, str] = {}  # of what a line is about; printed, and kept nowhere
        self.failed: list[str] = []
        self.at = ""  # what was looked at, if that is not in ``seen``
        self._pages, self._seen = options.pages, options.seen
        self.all_seen = json.loads(self._seen.read_text()) if self._seen.exists() else {}
        self.seen: dict[str, Any] = self.all_seen.setdefault(name, {})

    def page(self, address: str) -> str:
        """Return a page; "" if it could not be read, which fails the program at its end."""
        try:
            if self._pages:
                return saved_at(self._pages, address).read_text(encoding="utf-8")
            return from_network(address)
        except OSError as error:
            self.failed.append(f"{address}: {error}")
            return ""

    def table(self, name: str) -> dict[str, Any]:
        return tomllib.loads((self.data / name).read_text(encoding="utf-8"))

    def citing(self) -> dict[str, list[tuple[str, dict[str, Any]]]]:
        """Return the entries that cite each issue, as ROCm/TheRock#7699, and their tables."""
        sources = self.table("sources.toml")["sources"].items()
        issues = {key: f"{it['owner']}/{it['name']}#{it.get('number')}" for key, it in sources}
        found: dict[str, list[tuple[str, dict[str, Any]]]] = {}
        for path in sorted(self.data.rglob("*.toml")):
            for table, entry in _entries(tomllib.loads(path.read_text(encoding="utf-8"))):
                for source in entry.get("sources", ()):
                    found.setdefault(issues.get(source, source), []).append((table, entry))
        return found

    def unknown(self, issue: str, word: str, title: str) -> None:
        """Note an issue that no entry cites."""
        self.holds.append(f"{word} {issue}: no rule")
        self.titles[self.holds[-1]] = title

    def resolved(self, issue: str, word: str) -> None:
        """Note the rules about an issue that go on for ever although it is resolved."""
        for table, entry in self.citing().get(issue, ()):
            if table == "rule" and not bounded(entry):
                self.holds.append(f"{word} {issue}: rule {entry['id']} has no upper bound")

    def compare(self, what: str, now: dict[str, str], at: str) -> None:
        """Note what is new, gone or different since the last look, and remember what is there."""
        before = self.seen.get(what)
        if before and before["at"] != at:
            old, step = before["names"], f"{what} {before['at']} to {at}"
            for name in sorted(old.keys() | now.keys()):
                if name not in old:
                    self.differs.append(f"{step}: new {name}")
                elif name not in now:
                    self.differs.append(f"{step}: gone {name}")
                elif old[name] != now[name]:
                    self.differs.append(f"{step}: {name}{_difference(old[name], now[name])}")
        self.seen[what] = {"at": at, "names": now}

    def finish(self, *, write: bool) -> int:
        """Print what is new, and remember it."""
        path = self.data / "upstream.toml"
        known = self.table("upstream.toml") if path.exists() else {}
        before = next((it for it in known.get("watcher", ()) if it["name"] == self.name), {})
        left_out = {*known.get("left_out", ())}
        holds = [line for line in dict.fromkeys(self.holds) if not {line, subject(line)} & left_out]
        told = {*before.get("open", ()), *before.get("changed", ())}
        for line in (*holds, *self.differs):
            if line not in told:
                title = f" ({self.titles[line]})" if line in self.titles else ""
                sys.stdout.write(f"{line}{title}\n")
        sys.stdout.writelines(f"not read: {failure}\n" for failure in self.failed)
        if write and not self.failed:
            today = datetime.now(tz=UTC).date().isoformat()
            changed = [*dict.fromkeys((*before.get("changed", ()), *self.differs))]
            at = self.at or ", ".join(f"{what} {it['at']}" for what, it in self.seen.items())
            fields = {"name": self.name, "looked": today, "at": at}
            self._remember(path, {**fields, "open": holds, "changed": changed})
        return int(bool(self.failed))

    def _remember(self, path: Path, fields: dict[str, Any]) -> None:
        head, *blocks = blocks_of(path.read_text(encoding="utf-8") if path.exists() else "\n")
        mine = f"watcher]]\nname = {to_toml(self.name)}\n"
        text = "".join(f"{key} = {_lines(value)}\n" for key, value in fields.items())
        others = [it.rstrip("\n") + "\n\n" for it in blocks if not it.startswith(mine)]
        ordered = sorted([*others, f"watcher]]\n{text}\n"])
        path.write_text("[[".join([head, *ordered]).rstrip("\n") + "\n", encoding="utf-8")
        seen = {**self.all_seen, self.name: self.seen}
        self._seen.write_text(json.dumps(seen, indent=0, sort_keys=True) + "\n")


def _difference(old: str, new: str) -> str:
    """Return what differs; of a list of words, only those that are new or gone."""
    before, after = old.split(), new.split()
    lost = [word for word in before if word not in after]
    gained = [word for word in after if word not in before]
    if len(before) > 1 and lost + gained:
        changes = (("has lost", lost), ("has got", gained))
        return " and".join(f" {what} {' '.join(words)}" for what, words in changes if words)
    return f" was {old}, is {new}"


def _lines(value: object) -> str:
    """Return a list with one entry on each line, so that a person can delete one."""
    if isinstance(value, list) and value:
        return "[\n" + "".join(f"  {to_toml(it)},\n" for it in value) + "]"
    return to_toml(value)


def _entries(content: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for table, rows in content.items():
        if isinstance(rows, list):
            yield from ((table, row) for row in rows if isinstance(row, dict))


def subject(line: str) -> str:
    """Return what a line is about, such as ROCm/TheRock#7699."""
    return line.split(": ", 1)[0].rsplit(maxsplit=1)[-1]


def bounded(rule: dict[str, Any]) -> bool:
    """Return whether a rule ends with some version of ROCm."""

    def ends(node: object) -> bool:
        if isinstance(node, dict) and "fact" in node:
            return "rocm" in node["fact"] and "<" in node.get("version", "")
        parts = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
        return any(map(ends, parts))

    return "<" in rule.get("valid", {}).get("rocm", "") or ends(rule["when"])


def run(name: str, look: Callable[[Watch], None], arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=f"Watch: {name}.")
    parser.add_argument("what", nargs="*", help="what to look at instead of the newest")
    parser.add_argument("--write", action="store_true", help="remember what was found")
    parser.add_argument("--pages", type=Path, metavar="FOLDER", help="read saved pages")
    parser.add_argument("--data", type=Path, default=DATA, help="the folder of the tables")
    parser.add_argument("--seen", type=Path, default=SEEN, help="what was seen before")
    options = parser.parse_args(arguments)
    watch = Watch(name, options)
    look(watch)
    return watch.finish(write=options.write)
