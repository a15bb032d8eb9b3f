"""What stands on top of every file: what it is, what it rests on, what was not confirmed."""

from __future__ import annotations

import shlex
import textwrap

from rocsteady.exports.export import Export
from rocsteady.exports.torchrun_command import several_hosts

WIDTH = 96


def remarks(export: Export, what: str, facts: str) -> list[str]:
    """Return the sentences. ``facts`` says of what day and from where what it states is."""
    lines = [
        f"{what} Written by rocsteady on {export.written}.",
        "Not confirmed on hardware: this file has never been tried on a GPU.",
        f"Facts: {facts}",
        _how_it_goes_on(export),
    ]
    if export.deadline:
        lines.append(f"Due: {export.deadline}.")
    if export.setup:
        low, high = export.setup
        lines.append(f"Manual work: about {low:.0f} to {high:.0f} minutes.")
    return [*lines, *export.notes]


def of_schedulers(export: Export) -> list[str]:
    """Say what differs from a run that a person starts."""
    if not export.checkpoints:
        return []
    if not several_hosts(export.command):
        return ["The first start also resumes from such a file. To start over, move them away."]
    if export.resume:
        return [
            (
                "On several hosts, rocsteady cannot change the arguments of the script: it must"
                " find its newest checkpoint itself."
            )
        ]
    return []


def comments(sentences: list[str]) -> list[str]:
    """Write each as a comment of shell, YAML or Dockerfile; what is indented stays on its line."""
    lines = []
    for sentence in map(plain, sentences):
        wrapped = textwrap.wrap(sentence, WIDTH, break_long_words=False, break_on_hyphens=False)
        lines += [sentence] if sentence.startswith(" ") else wrapped
    return [f"# {line}" for line in lines]


def plain(text: str) -> str:
    """Keep a text on one line and in ASCII, whatever is in a name or a path."""
    seen = "".join(letter if letter.isprintable() else f"\\x{ord(letter):02x}" for letter in text)
    return seen.encode("ascii", "backslashreplace").decode()


def _how_it_goes_on(export: Export) -> str:
    if not export.checkpoints:
        return (
            "rocsteady does not know how the script resumes, so an interrupted run starts from"
            " the beginning. To change that, set [resume] in rocsteady.toml."
        )
    by = f" by {shlex.join(export.resume)}" if export.resume else ""
    return (
        "An interrupted run resumes from the newest intact file of"
        f" {', '.join(export.checkpoints)}{by}, as set in rocsteady.toml. Keep that file with"
        " the project."
    )
