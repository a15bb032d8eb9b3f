"""Print the lines of Python in each room: ``python tools/size.py [REVISION]``.

With a revision, also by how many lines each room has grown since. The tests' corpora (scripts that
are watched, read or run, and test nothing themselves) are counted apart. Files that git does not
know are not counted.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
CORPORA = ("tests/run/resume_scripts", "tests/trainers/projects", "tests/victims")
SOURCE, TESTS, CORPUS = "packages/*/src", "tests", "tests: corpora"
NOTHING_FOUND = 1  # the exit code of git grep


def room_of(path: str) -> tuple[str, str]:
    """Return what a file is part of, and its room there."""
    first, *rest = path.split("/")
    if corpus := next((each for each in CORPORA if path.startswith(f"{each}/")), ""):
        return CORPUS, corpus.removeprefix("tests/")
    if first == "packages":
        package, folders = rest[2], rest[3:-1]
        return SOURCE, "/".join((package, *folders[:1]))
    return TESTS, rest[0] if len(rest) > 1 else ""


def lines_by_room(revision: str = "") -> Counter[tuple[str, str]]:
    """Count in a revision, or in the files as they are now."""
    words = ["git", "grep", "--count", "-z", "", *([revision] if revision else [])]
    places = ["--", "packages/*/src/*.py", "tests/*.py"]
    done = subprocess.run([*words, *places], cwd=ROOT, capture_output=True, check=False, text=True)
    if done.returncode > NOTHING_FOUND:
        sys.exit(done.stderr.strip())
    lines: Counter[tuple[str, str]] = Counter()
    for line in done.stdout.splitlines():
        path, _, count = line.partition("\0")
        lines[room_of(path.removeprefix(f"{revision}:"))] += int(count)
    return lines


def main() -> None:
    """Print a table."""
    revision = next(iter(sys.argv[1:]), "")
    now = lines_by_room()
    before = lines_by_room(revision) if revision else now
    for part in (SOURCE, TESTS, CORPUS):
        rooms = sorted(room for room in now.keys() | before.keys() if room[0] == part)
        lines = [(name, now[part, name], before[part, name]) for _, name in rooms]
        lines.append((part, sum(line[1] for line in lines), sum(line[2] for line in lines)))
        for name, count, old in lines:
            change = f"{count - old:+9,}" if revision else ""
            sys.stdout.write(f"{name:32}{count:9,}{change}\n")
        sys.stdout.write("\n")


if __name__ == "__main__":
    main()
