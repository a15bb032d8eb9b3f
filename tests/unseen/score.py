"""How ``rocsteady explain`` does on texts that nobody had seen when its knowledge was written.

    python tests/unseen/score.py                     the open half, text by text
    python tests/unseen/score.py closed              the closed half: totals, and nothing besides
    python tests/unseen/score.py closed --texts      opens it: once, by somebody who wrote no entry
    python tests/unseen/score.py --sources           every thread that was used already
    python tests/unseen/score.py --draw NEW.toml     splits a new month in two

A file has the month in its name. The closed half is stored so that no search of this repository
shows a line of it. README.md beside this file has the procedure.
"""

from __future__ import annotations

import argparse
import base64
import json
import random
import sys
import tomllib
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from rocsteady.cli.explain import command

HERE = Path(__file__).parent
HALVES = ("open", "closed")
VERDICTS = ("right", "generic", "wrong", "nothing")
FIRST = 3  # entries that a symptom may take to lead to the right one
WIDTH = 76


def texts(path: Path) -> list[dict[str, Any]]:
    """Return the messages and the symptoms of one file."""
    content = path.read_text("utf-8")
    if path.suffix == ".b64":
        content = zlib.decompress(base64.b64decode(content)).decode()
    read = tomllib.loads(content)
    return [it | {"of": of} for of in ("message", "symptom") for it in read.get(of, [])]


def files(half: str) -> list[Path]:
    return sorted(HERE.glob("*.toml" if half == "open" else "*.b64"))


def named(text: str) -> tuple[list[str], list[str]]:
    """Return what explain says that it is, and what it only guesses."""
    result = CliRunner().invoke(command, ["--json", "--", text])
    if result.exit_code not in (0, 1):
        return [], []
    said = json.loads(result.stdout)
    guesses = [it["id"] for it in said.get("guesses", ())]
    if "message" in said:
        return ["note", said["message"]["id"]], guesses
    kind = said["failure"]["kind"]
    return ([] if kind == "unknown" else [kind]), guesses


def judged(it: dict[str, Any]) -> tuple[str, list[str]]:
    """Return right, generic, wrong or nothing, and the names."""
    sure, guesses = named(it["text"])
    if it["of"] == "symptom":
        names = [*sure, *guesses][:FIRST]
        right = not {*names}.isdisjoint(it["right"])
        return ("right" if right else "wrong" if names else "nothing"), names
    for verdict in ("right", "generic"):
        if not {*sure}.isdisjoint(it.get(verdict, ())):
            return verdict, sure
    return ("wrong" if sure else "nothing"), sure


def show(half: str, *, each: bool) -> None:
    for path in files(half):
        counts: Counter[tuple[str, str]] = Counter()
        for it in texts(path):
            verdict, names = judged(it)
            counts[it["of"], verdict] += 1
            if each:
                sys.stdout.write(f"{verdict:8} {it['source'][:WIDTH]}  {' '.join(names)}\n")
        for of in ("message", "symptom"):
            told = [f"{counts[of, verdict]} {verdict}" for verdict in VERDICTS]
            sys.stdout.write(f"{path.stem} {half}: {of}s: {', '.join(told)}\n")


def draw(path: Path) -> None:
    """Split a file of texts into halves, by a draw that its name decides."""
    parts: dict[str, list[str]] = {half: [] for half in HALVES}
    blocks = path.read_text("utf-8").split("\n[[")
    for of in ("message", "symptom"):
        mine = sorted(block for block in blocks if block.lstrip("[").startswith(of))
        random.Random(path.stem).shuffle(mine)  # noqa: S311 - a draw that others can repeat
        for index, block in enumerate(mine):
            parts[HALVES[index % 2]].append("[[" + block.lstrip("[").rstrip() + "\n")
    (HERE / path.name).write_text("\n".join(parts["open"]), "utf-8")
    packed = base64.encodebytes(zlib.compress("\n".join(parts["closed"]).encode(), 9))
    (HERE / f"{path.stem}.b64").write_bytes(packed)


def main() -> None:
    parser = argparse.ArgumentParser(description="Score explain on texts that nobody had seen.")
    parser.add_argument("half", nargs="?", choices=HALVES, default="open")
    parser.add_argument("--texts", action="store_true", help="show each text of the closed half")
    parser.add_argument("--sources", action="store_true", help="list all threads, of both halves")
    parser.add_argument("--draw", type=Path, metavar="FILE", help="split FILE into the two halves")
    arguments = parser.parse_args()
    if arguments.draw:
        draw(arguments.draw)
    elif arguments.sources:
        every = {it["source"] for half in HALVES for path in files(half) for it in texts(path)}
        sys.stdout.write("".join(f"{source}\n" for source in sorted(every)))
    else:
        show(arguments.half, each=arguments.half == "open" or arguments.texts)


if __name__ == "__main__":
    main()
