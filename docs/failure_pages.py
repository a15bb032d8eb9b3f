"""The pages about single failures, made from the knowledge base.

``python docs/failure_pages.py`` writes docs/failures/; the documentation does so when it is built.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from gpu_pages import plain, write

from rocsteady.doctor.knowledge.failures import (
    FailureKnowledge,
    KnownFailure,
    Where,
    load_failures,
)
from rocsteady.doctor.knowledge.values import Step
from rocsteady.failures.remedy import load_remedies
from rocsteady.model import FailureKind
from rocsteady.screens.explain import NATURES

HERE = Path(__file__).parent
NO_PAGE = (FailureKind.UNKNOWN, "script-error", "script-exit", "stopped-by-rocsteady")
IN_TITLE, SHORTEST, LONGEST = 2, 12, 60  # messages in a title, and letters of each
LINES = 8  # of messages, on a page


def files(knowledge: FailureKnowledge) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each file."""
    kinds = [kind for kind in knowledge.kinds.values() if kind.id not in NO_PAGE]
    yield "index.md", "\n\n".join(_index(kinds))
    for kind in kinds:
        yield f"{kind.id}.md", "\n\n".join(_page(kind, knowledge))


def _index(kinds: list[KnownFailure]) -> Iterator[str]:
    yield "# Failures"
    yield (
        "What goes wrong in PyTorch training, on AMD GPUs and elsewhere: how it looks, what it"
        " means and what helps. `rocsteady explain` names the one behind an error message or a"
        " log. Generated from the knowledge base."
    )
    yield "\n".join(f"- [{plain(kind.title)}]({kind.id}.md)" for kind in kinds)
    yield "\n".join(["```{toctree}", ":hidden:", "", *(kind.id for kind in kinds), "```"])


def _page(kind: KnownFailure, knowledge: FailureKnowledge) -> Iterator[str]:
    messages = _messages(kind.id, knowledge)
    parts = dict.fromkeys(messages.values())
    short = [part for part in parts if SHORTEST <= len(part) <= LONGEST][:IN_TITLE]
    yield f"# {plain(': '.join([kind.title, ', '.join(short)] if short else [kind.title]))}"
    if messages:
        yield "## How it looks"
        yield "\n".join(["```text", *list(messages)[:LINES], "```"])
    if kind.said:
        yield "## How people say it"
        yield "\n".join(f"- {plain(line)}" for line in kind.said)
    yield "## What it means"
    words = (kind.words, kind.gpu_words, kind.rank_words)
    yield plain(" ".join(part for part in words if part))
    yield NATURES[kind.nature]
    yield "## What to do"
    advice = kind.fix or kind.advice
    if advice and advice.check:
        yield "To check first:"
        yield _commands(advice.check)
    for number, step in enumerate((advice, *advice.then) if advice else (), 1):
        yield from _step(number, step)
    remedies = [] if kind.fix else [it for it in load_remedies().values() if kind.id in it.answers]
    if remedies:
        yield "`rocsteady run` can try these by itself, one at a time:"
        yield "\n".join(
            f"- {plain(it.title)} ([{it.id}](../reference/remedies.md#{it.id})); its cost:"
            f" {plain(it.cost)}. Not for: {plain(it.when_not)}"
            for it in remedies
        )
    yield f"On your machine, with what its own findings say of it: `rocsteady explain {kind.id}`"
    yield f"Sources: {plain('; '.join(kind.sources))}. We have not confirmed this on hardware."


def _messages(kind: str, knowledge: FailureKnowledge) -> dict[str, str]:
    """Return the line of each sample by which the failure is known, and what of it is searched for.

    Stacks are no messages, and neither is how a process ended.
    """
    found = {}
    for signature in knowledge.signatures:
        if signature.failure == kind and signature.where not in (Where.EXIT, Where.STACK):
            lines = [line.strip() for line in signature.sample.strip().splitlines()]
            pattern = signature.pattern or "$^"  # an exception without one: its last line
            matches = ((line, re.search(pattern, line)) for line in lines)
            line, match = next(((it, seen) for it, seen in matches if seen), (lines[-1], None))
            part = match.group().strip(" :'") if match else line
            if line.isascii() and "```" not in line and "Traceback" not in line:
                found[line] = part if " " in part else line
    return found


def _step(number: int, step: Step) -> Iterator[str]:
    gpus = f" (for {', '.join(step.gpus)})" if step.gpus else ""
    yield f"**{number}.** {plain(step.text)}{gpus}"
    if step.commands:
        yield _commands(step.commands)
    if step.windows:
        yield "On Windows, in PowerShell:"
        yield _commands(step.windows)


def _commands(commands: tuple[str, ...]) -> str:
    return "\n".join(["```text", *commands, "```"])


def write_failure_pages(folder: Path = HERE / "failures") -> None:
    """Write all pages."""
    write(folder, files(load_failures()))


if __name__ == "__main__":
    write_failure_pages()
