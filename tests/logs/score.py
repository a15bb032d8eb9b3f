"""How well failures are named, on the texts beside this file.

    python tests/logs/score.py

`tuning` was looked at while signatures were written, `held-out` never; `healthy` is output of runs
that did not fail, where nothing may be named. Each text says in its head what it must be called.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rocsteady.doctor.knowledge.failures import load_failures
from rocsteady.failures.classify import Classifier
from rocsteady.failures.symptoms import Symptoms
from rocsteady.model import Certainty, FailureKind

HERE = Path(__file__).parent
PARTS = ("tuning", "held-out", "healthy")
END_OF_HEAD = "# ----"


class Text(NamedTuple):
    """One file."""

    name: str
    label: str  # "" of a run that did not fail
    symptoms: Symptoms


class Score(NamedTuple):
    """What came of one part."""

    texts: int
    whole: int
    named: int
    right: int
    certain: int  # of those that were named
    certain_right: int
    confused: Counter[tuple[str, str]]  # what it is, what it was called
    wrong: list[str]

    @property
    def precision(self) -> float:
        return self.right / self.named if self.named else 1.0

    @property
    def share_named(self) -> float:
        return self.named / self.texts if self.texts else 0.0


def read(path: Path) -> tuple[dict[str, str], str]:
    """Split a file into its head and its text."""
    content = path.read_bytes().decode("utf-8", "replace")  # carriage returns are part of it
    head, _, text = content.partition(f"{END_OF_HEAD}\n")
    lines = (line[2:].partition(":") for line in head.splitlines() if line.startswith("# "))
    return {key.strip(): value.strip() for key, _, value in lines}, text


def texts(part: str) -> Iterator[Text]:
    for path in sorted((HERE / part).glob("*.txt")):
        head, text = read(path)
        kernel = head.get("what") == "kernel"
        yield Text(
            path.name,
            "" if part == "healthy" else head.get("failure", ""),
            Symptoms(
                log="" if kernel else text,
                kernel=tuple(text.splitlines()) if kernel else (),
                exit_code=int(head["exit"]) if "exit" in head else None,
                signal=int(head["signal"]) if "signal" in head else None,
                hung=head.get("hung") == "yes",
            ),
        )


def score(part: str, classifier: Classifier) -> Score:
    confused: Counter[tuple[str, str]] = Counter()
    wrong = []
    whole = certain = certain_right = 0
    for text in texts(part):
        failure = classifier.name(text.symptoms)
        named = failure.kind
        certain += failure.certainty is Certainty.CERTAIN
        certain_right += failure.certainty is Certainty.CERTAIN and named == text.label
        confused[text.label, named] += 1
        whole += "whole: yes" in (HERE / part / text.name).read_text("utf-8", "replace")[:2000]
        if named not in (text.label, FailureKind.UNKNOWN):
            wrong.append(f"{text.name}: called {named}")
        elif named != text.label and text.label:
            wrong.append(f"{text.name}: not named")
    named_ones = {pair: n for pair, n in confused.items() if pair[1] != FailureKind.UNKNOWN}
    return Score(
        texts=sum(confused.values()),
        whole=whole,
        named=sum(named_ones.values()),
        right=sum(n for (label, named), n in named_ones.items() if label == named),
        certain=certain,
        certain_right=certain_right,
        confused=confused,
        wrong=wrong,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Score the names of failures on known texts.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--json", action="store_true", help="totals only, as one JSON object")
    parser.add_argument("--wrong", action="store_true", help="name the texts; never for held-out")
    arguments = parser.parse_args()
    classifier = Classifier(load_failures())
    scores = {part: score(part, classifier) for part in arguments.parts or PARTS}
    if arguments.json:
        told = {part: it._asdict() | {"confused": 0, "wrong": 0} for part, it in scores.items()}
        for part, it in scores.items():
            told[part] |= {"precision": it.precision, "share_named": it.share_named}
        sys.stdout.write(json.dumps(told) + "\n")
        return
    for part, it in scores.items():
        sys.stdout.write(told_of(part, it))
        if arguments.wrong and part != "held-out":
            sys.stdout.write("".join(f"  {line}\n" for line in it.wrong))


def told_of(part: str, it: Score) -> str:
    """Write one part: the figures, then the confusion table without its diagonal."""
    if part == "healthy":
        head = f"{part}: {it.texts} texts, {it.named} with a failure named\n"
    else:
        head = (
            f"{part}: {it.texts} texts, {it.whole} of them whole outputs\n"
            f"  named {it.named} ({it.share_named:.3f}), right {it.right}"
            f" (precision {it.precision:.3f})\n"
            f"  certain {it.certain}, right {it.certain_right};"
            f" likely {it.named - it.certain}, right {it.right - it.certain_right}\n"
        )
    off = sorted(pair for pair in it.confused if pair[0] != pair[1])
    rows = [
        (is_, called, it.confused[is_, called])
        for is_, called in off
        if is_ or called != FailureKind.UNKNOWN
    ]
    if rows:
        head += f"  {'is':<24} {'called':<24} texts\n"
        head += "".join(
            f"  {is_ or 'healthy':<24} {called:<24} {n:>5}\n" for is_, called, n in rows
        )
    return head


if __name__ == "__main__":
    main()
