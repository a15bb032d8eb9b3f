"""``rocsteady explain``: name an error that somebody has in hand, and say what is known of it."""

from __future__ import annotations

import os
import re
import sys
from collections import deque
from collections.abc import Iterable
from typing import BinaryIO

import click
import msgspec

from rocsteady.errors import ExaminationError
from rocsteady.failures.classify import Classifier
from rocsteady.failures.symptoms import Symptoms
from rocsteady.knowledge.failures import (
    UNKNOWN,
    FailureKind,
    FailureKnowledge,
    Nature,
    load_failures,
)
from rocsteady.knowledge.messages import KnownMessage, find_message
from rocsteady.knowledge.values import Fix
from rocsteady.model import Certainty, Failure
from rocsteady.redaction.machine_names import redactor_here
from rocsteady.report.text_page import BOLD, DIM, Page
from rocsteady.terminal.screen import layout, show, show_json
from rocsteady.untrusted_file import read_tail

NAMED, NOT_NAMED = 0, 1
MOST = 64 * 1024 * 1024  # bytes of a file's end that are looked at
PIECE = 1024 * 1024
FILE_NAME = re.compile(r"\S*/\S*|\S+\.\w{1,5}|.+\.(?:log|txt|out|err)", re.IGNORECASE)
RECOVERED = "The text shows progress after this failure, so the run may have recovered from it."
NATURES = {
    Nature.TRANSIENT: "This failure is often transient; retrying may be enough.",
    Nature.DETERMINISTIC: "The run will fail in the same way until something is changed.",
    Nature.EITHER: "This may be transient; if it happens twice in the same place, it is not.",
}


@click.command("explain")
@click.argument("text")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def command(ctx: click.Context, *, text: str, as_json: bool) -> None:
    """Identify the failure in TEXT and say what is known about it.

    TEXT is an error message, or a file with output, a kernel log or stacks, or - for standard
    input. Nothing in it is executed, and nothing leaves this machine.

    Exit code: 0 identified, 1 not identified, 2 incorrect usage.
    """
    knowledge = load_failures()
    given = _given(text)
    classifier = Classifier(knowledge)
    named = classifier.name(Symptoms(log=given))
    earlier = named.kind == UNKNOWN and classifier.name(Symptoms(log=given), recovered=True)
    recovered = bool(earlier and earlier.kind != UNKNOWN)
    if earlier and recovered:
        named = msgspec.structs.replace(earlier, certainty=Certainty.LIKELY)
    message = find_message(given) if named.kind == UNKNOWN else None
    if message is not None:
        _show_message(*message, as_json=as_json)
        return
    if named.kind == UNKNOWN and given == text and FILE_NAME.fullmatch(text):
        raise click.BadParameter(f"file {text!r} does not exist.", param_hint="TEXT")
    failure = msgspec.convert(redactor_here().value(msgspec.to_builtins(named)), Failure)
    if as_json:
        told = {"version": 1, "failure": failure, "known": knowledge.kinds[failure.kind]}
        show_json({**told, "recovered": recovered})
    else:
        width, colour = layout(sys.stdout)
        show(render(failure, knowledge, width=width, colour=colour, recovered=recovered))
    ctx.exit(NOT_NAMED if failure.kind == UNKNOWN else NAMED)


def _show_message(message: KnownMessage, line: str, *, as_json: bool) -> None:
    """Say what is known of a line that is no failure."""
    line = redactor_here().text(line)
    if as_json:
        show_json({"version": 1, "message": message, "line": line})
        return
    width, colour = layout(sys.stdout)
    page = Page(width, colour=colour)
    page.line(f"{message.id}  not a failure by itself", style=BOLD)
    page.paragraph(f"{message.title}.")
    page.line()
    page.line("Evidence", style=BOLD)
    page.line(f"  {line}")
    page.line()
    page.paragraph(message.words)
    page.line()
    page.line("What a person can do", style=BOLD)
    _fix(page, message.fix)
    _sources(page, message.sources)
    show(str(page))


def render(
    failure: Failure,
    knowledge: FailureKnowledge,
    *,
    width: int,
    colour: bool,
    recovered: bool = False,
) -> str:
    """Lay out what is known of a failure."""
    page = Page(width, colour=colour)
    if failure.kind == UNKNOWN:
        page.paragraph("No known failure was found in this text.", style=BOLD)
        page.paragraph(
            "It may not be a failure, or rocsteady may not know this one yet. More output may help:"
            " include the whole traceback, and the kernel log from that time (dmesg)."
        )
        return str(page)
    kind = knowledge.kinds[failure.kind]
    page.line(_head(failure), style=BOLD)
    page.paragraph(f"{failure.title}.")
    _seen(page, failure)
    page.line()
    if recovered:
        page.paragraph(RECOVERED)
    page.paragraph(failure.words)
    page.paragraph(NATURES[kind.nature])
    _to_do(page, kind)
    _sources(page, failure.sources)
    return str(page)


def _head(failure: Failure) -> str:
    rank = "" if failure.rank is None else f"  on rank {failure.rank}"
    sure = "" if failure.certainty is Certainty.CERTAIN else "  likely"
    return f"{failure.kind}{sure}{rank}"


def _seen(page: Page, failure: Failure) -> None:
    page.line()
    page.line("Evidence", style=BOLD)
    for line in failure.seen:
        page.line(f"  {line}")
    if failure.line:
        page.paragraph(f"Python was at {failure.line}.", indent=2)
    elif failure.fingerprint.place:
        page.paragraph(f"in {failure.fingerprint.place}", indent=2)
    if failure.also:
        others = ", ".join(f"{kind} ({role.value})" for kind, role in failure.also)
        page.paragraph(f"Also seen: {others}.", indent=2, style=DIM)


def _to_do(page: Page, kind: FailureKind) -> None:
    """Say what a person can do. What the program would try by itself belongs below it."""
    fix = kind.fix or kind.advice
    if fix is None:
        return
    page.line()
    page.line("What to do" if kind.fix else "What a person can do", style=BOLD)
    _fix(page, fix)


def _fix(page: Page, fix: Fix) -> None:
    page.paragraph(fix.text, indent=2)
    here = os.name == "nt" and fix.windows
    page.lines(fix.windows if here else fix.commands, indent=4)
    if fix.windows and not here:
        page.paragraph("On Windows, in PowerShell:", indent=2)
        page.lines(fix.windows, indent=4)
    if fix.container:
        page.paragraph("In a container:", indent=2)
        page.lines(fix.container, indent=4)
    if fix.needs:
        page.paragraph(f"Needs: {', '.join(need.value for need in fix.needs)}.", indent=2)
    if fix.verify:
        page.paragraph(f"To check that it worked: {fix.verify}", indent=2)


def _sources(page: Page, sources: Iterable[str]) -> None:
    page.line()
    page.paragraph(f"Sources: {', '.join(sources)}.", style=DIM)
    page.paragraph("rocsteady's authors have not confirmed this on hardware.", style=DIM)


def _given(text: str) -> str:
    """Return the text itself, what is piped in, or the end of the file of that name."""
    if text == "-":
        return _end_of(sys.stdin.buffer)
    try:
        if text.startswith("/dev/fd/"):  # a pipe of the shell: explain <(dmesg)
            with open(text, "rb") as file:  # noqa: PTH123 - no path of a file
                return _end_of(file)
        return read_tail(text, MOST).decode("utf-8", "replace")
    except (OSError, ValueError) as error:
        if isinstance(error, PermissionError):
            raise ExaminationError(f"{text}: {error.strerror}") from None
        if "\0" in text or not os.path.lexists(text):  # not the name of a file
            return text
        if os.path.isdir(text):  # noqa: PTH112 - it may be no path
            raise click.BadParameter(f"{text} is a folder.", param_hint="TEXT") from None
        raise ExaminationError(f"{text}: not a regular file. Use - to read from a pipe") from None


def _end_of(stream: BinaryIO) -> str:
    """Read to the end and keep the last of it; memory is bounded."""
    pieces: deque[bytes] = deque()
    kept = 0
    while piece := stream.read(PIECE):
        pieces.append(piece)
        kept += len(piece)
        while kept - len(pieces[0]) >= MOST:
            kept -= len(pieces.popleft())
    return b"".join(pieces)[-MOST:].decode("utf-8", "replace")
