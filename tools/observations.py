"""Take in what people share by the issue form, and count it.

    python tools/observations.py receive ISSUES.json   write accepted entries, print what was done
    python tools/observations.py count                 write the counts that the package ships
    python tools/observations.py check                 check the files, and the counts with them

ISSUES.json is what ``gh issue list --json number,author,body`` prints. ``receive`` writes
``received.json`` beside it: for each issue, why its entry was refused, or nothing. The account is
stored as a hash with the salt in OBSERVATIONS_SALT. For maintainers; not part of the package.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from rocsteady.cli.share import shared_names
from rocsteady.doctor.knowledge.observations import (
    Entry,
    Received,
    count,
    decode_entry,
    entry_problems,
)
from rocsteady.doctor.knowledge.reader import load_knowledge

PACKAGE = Path(__file__).parents[1] / "packages/rocsteady_knowledge"
FOLDER = PACKAGE / "observations"
COUNTS = PACKAGE / "src/rocsteady_knowledge/data/observations.json"
SALT = "OBSERVATIONS_SALT"
FENCED = re.compile(
    r"^### Entry\s+(?:```\w*\n)?(\{.*?\})\s*(?:```|^###|\Z)", re.DOTALL | re.MULTILINE
)
REMOVE = re.compile(r"^- \[[xX]\] Remove this entry", re.MULTILINE)
MOST_OF_ONE = 20  # files of one account: GPUs times builds


class Issue(NamedTuple):
    number: int
    login: str
    body: str


class Observations:
    """The files below a folder."""

    def __init__(self, folder: Path = FOLDER, salt: str = "") -> None:
        self.folder = folder
        self._salt = salt
        self.received: dict[int, Received] = {}
        for path in sorted(folder.glob("gfx*/*.json")):
            each = msgspec.json.decode(path.read_bytes(), type=Received)
            self.received[each.issue] = each

    def take_in(self, issues: Iterable[Issue], this_month: str) -> dict[int, list[str]]:
        """Add, replace or remove the entries of issues; return what was wrong with each."""
        knowledge, names = load_knowledge(), shared_names()
        wrong: dict[int, list[str]] = {}
        seen = {(it.sender, _content(it.entry)): it.issue for it in self.received.values()}
        of_sender: dict[str, int] = {}
        for each in self.received.values():
            of_sender[each.sender] = of_sender.get(each.sender, 0) + 1
        for issue in issues:
            if REMOVE.search(issue.body):
                self._remove(issue.number)
                continue
            found = FENCED.search(issue.body)
            try:
                entry = decode_entry(found[1] if found else "")
            except msgspec.DecodeError as error:
                wrong[issue.number] = [str(error) if found else "there is no entry"]
                continue
            sender = hashlib.sha256(f"{self._salt}:{issue.login}".encode()).hexdigest()[:16]
            problems = list(entry_problems(entry, knowledge, names, this_month))
            same = seen.get((sender, _content(entry)), issue.number)
            if same != issue.number:
                problems.append(f"the same as #{same}")
            new = issue.number not in self.received
            if new and of_sender.get(sender, 0) >= MOST_OF_ONE:
                problems.append(f"more than {MOST_OF_ONE} entries of one account")
            wrong[issue.number] = problems
            if not problems:
                self._remove(issue.number)
                self.received[issue.number] = Received(
                    issue=issue.number, sender=sender, entry=entry
                )
                seen[sender, _content(entry)] = issue.number
                of_sender[sender] = of_sender.get(sender, 0) + new
        return wrong

    def write(self) -> None:
        """Write a file for each entry, and remove those of entries that are gone."""
        wanted = {
            self.folder / each.entry.gpu.gfx / f"{each.issue}.json": each
            for each in self.received.values()
        }
        for path in self.folder.glob("gfx*/*.json"):
            if path not in wanted:
                path.unlink()
        for path, each in wanted.items():
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(msgspec.json.format(msgspec.json.encode(each), indent=1) + b"\n")

    def counts(self) -> bytes:
        """Return the counts as the package ships them."""
        encoded = msgspec.json.encode({"cell": count(self.received.values())})
        return msgspec.json.format(encoded, indent=2) + b"\n"

    def problems(self, this_month: str) -> Iterator[str]:
        """Yield what is wrong with the files."""
        knowledge, names = load_knowledge(), shared_names()
        for number, each in self.received.items():
            for problem in entry_problems(each.entry, knowledge, names, this_month):
                yield f"{each.entry.gpu.gfx}/{number}.json: {problem}"

    def _remove(self, number: int) -> None:
        self.received.pop(number, None)


def _content(entry: Entry) -> bytes:
    return msgspec.json.encode(entry, order="sorted")


def read_issues(path: Path) -> list[Issue]:
    """Read what gh prints; the oldest first."""
    found = [
        Issue(each["number"], each["author"]["login"], each["body"].replace("\r\n", "\n"))
        for each in json.loads(path.read_bytes())
    ]
    return sorted(found)


def main(arguments: list[str]) -> int:
    """Do what is asked; 0 if all is well, 1 if not."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("action", choices=("receive", "count", "check"))
    parser.add_argument("issues", nargs="?", type=Path)
    asked = parser.parse_args(arguments)
    month = datetime.now(tz=UTC).strftime("%Y-%m")
    observations = Observations(salt=os.environ.get(SALT, ""))
    if asked.action == "receive":
        if asked.issues is None or not os.environ.get(SALT):
            parser.error(f"receive needs ISSUES.json and the variable {SALT}")
        wrong = observations.take_in(read_issues(asked.issues), month)
        observations.write()
        asked.issues.with_name("received.json").write_text(json.dumps(wrong), encoding="utf-8")
        for number, problems in wrong.items():
            sys.stdout.write(f"#{number}: {'; '.join(problems) or 'accepted'}\n")
    if asked.action == "check":
        problems = list(observations.problems(month))
        if COUNTS.read_bytes() != observations.counts():
            problems.append("observations.json: not the counts of the files: run count")
        sys.stdout.writelines(f"{problem}\n" for problem in problems)
        return int(bool(problems))
    COUNTS.write_bytes(observations.counts())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
