"""``rocsteady explain``: what is known of an error, of a failure, and of the workarounds for it."""

from __future__ import annotations

import os
import re
import sys
from collections import deque
from pathlib import Path
from typing import BinaryIO

import click
import msgspec
from rocsteady_train.untrusted_file import read_tail

from rocsteady.cli.options import open_root, python_option, root_option
from rocsteady.doctor.checks import CHECKS
from rocsteady.doctor.diagnosis import doctors_knowledge, rule_findings
from rocsteady.doctor.facts import gather
from rocsteady.doctor.knowledge.failures import (
    FailureKnowledge,
    KnownFailure,
    KnownMessage,
    find_message,
    load_failures,
)
from rocsteady.doctor.knowledge.reader import SLUG, Knowledge
from rocsteady.doctor.machine.machine import examine
from rocsteady.errors import ExaminationError
from rocsteady.failures.classify import Classifier
from rocsteady.failures.own_words import guesses
from rocsteady.failures.remedy import load_remedies
from rocsteady.failures.signature_search import cleaned
from rocsteady.failures.symptoms import Symptoms
from rocsteady.model import Certainty, Failure, FailureKind
from rocsteady.screens.explain import (
    MachineContext,
    failure_page,
    guess_page,
    message_page,
    workaround_page,
    workarounds_for,
)
from rocsteady.screens.screen import page_here, show, show_json, without_secrets
from rocsteady.store.redaction import redactor_here
from rocsteady.suggestions import no_such
from rocsteady.system.root import Root
from rocsteady.typed_values import convert

NAMED, NOT_NAMED = 0, 1
MAX_BYTES = 32 * 1024 * 1024  # bytes of a file's end that are looked at
PIECE_BYTES = 1024 * 1024
FILE_NAME = re.compile(r"\S*/\S*|\S+\.\w{1,5}|.+\.(?:log|txt|out|err)", re.IGNORECASE)
FIND_FAILURE = 'To find the ID of a failure: rocsteady explain "ERROR MESSAGE"'


@click.command("explain")
@click.argument("text", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@python_option
@root_option
@click.pass_context
def command(
    ctx: click.Context, *, text: str | None, as_json: bool, python: str | None, root: Path | None
) -> None:
    """Identify the failure in TEXT and show what is known about it, with workarounds.

    TEXT is an error message, a file with output, a kernel log or stacks, or - for standard input;
    or an ID: of a failure (hang-in-loader), a workaround (loader-inline), a finding of the doctor
    (igpu-visible) or a GPU (gfx1100). Nothing in it is executed, and nothing leaves this machine.

    Exit code: 0 identified, 1 not identified, 2 incorrect usage.
    """
    if (root or python) and text in load_remedies():
        raise click.UsageError("--root and --python need an error message or the ID of a failure")
    if text is None:
        raise click.UsageError('name an error message, a file or an ID: rocsteady explain "TEXT"')
    if text in load_remedies():
        remedy = load_remedies()[text]
        if as_json:
            show_json({"version": 1, "workaround": remedy})
        else:
            show(workaround_page(remedy, page_here()))
    elif (doctors := _doctor_knowing(text)) is not None:
        from rocsteady.cli.doctor import explained  # noqa: PLC0415 - seldom needed

        show(explained(doctors, text, as_json=as_json))
    else:
        ctx.exit(_show_failure(text, open_root(root, python), as_json=as_json))


def _doctor_knowing(text: str) -> Knowledge | None:
    """Return the doctor's knowledge if a text names a rule or a GPU, as the doctor prints them."""
    if not SLUG.fullmatch(text):
        return None
    knowledge = doctors_knowledge()
    return knowledge if text in knowledge.rules or text in knowledge.arches else None


def _here(kind: str, root: Root) -> MachineContext:
    knowledge = doctors_knowledge()
    try:
        machine, _ = examine(root, knowledge.variables)
    except Exception:  # noqa: BLE001 - what is known of the failure is worth showing without it
        return MachineContext((), frozenset())
    facts = gather(machine, knowledge)
    found = rule_findings(machine, facts, knowledge, CHECKS).findings
    names = {gfx for gfx in map(str, facts.values("gpu.gfx")) if gfx in knowledge.arches}
    families = {knowledge.arches[gfx].family for gfx in names}
    causes = {rule.id for rule in knowledge.rules.values() if kind in rule.leads_to}
    return MachineContext(
        tuple(without_secrets(it) for it in found if it.rule in causes), frozenset(names | families)
    )


def _show_failure(text: str, root: Root, *, as_json: bool) -> int:
    knowledge = load_failures()
    recovered, meant = False, tuple[KnownFailure, ...]()
    if text in knowledge.kinds:
        named = knowledge.kinds[text].failure
    else:
        given = _given(text)
        classifier, symptoms = Classifier(knowledge), Symptoms(log=cleaned(given))
        named = classifier.name(symptoms)
        earlier = named.kind == FailureKind.UNKNOWN and classifier.name(symptoms, recovered=True)
        recovered = bool(earlier and earlier.kind != FailureKind.UNKNOWN)
        if earlier and recovered:
            named = msgspec.structs.replace(earlier, certainty=Certainty.LIKELY)
        message = find_message(given) if named.kind == FailureKind.UNKNOWN else None
        if message is not None:
            _show_message(*message, as_json=as_json)
            return NAMED
        if named.kind == FailureKind.UNKNOWN and given == text:
            _refuse_name(text, knowledge)
            meant = guesses(text)
    failure = convert(redactor_here().value(msgspec.to_builtins(named)), Failure)
    here = _here(failure.kind, root)
    if as_json:
        show_json(
            {
                "version": 1,
                "failure": failure,
                "known": knowledge.kinds[failure.kind],
                "here": here.findings,
                "recovered": recovered,
                "guesses": [{"id": it.id, "title": it.title} for it in meant],
                "workarounds": workarounds_for(knowledge.kinds[failure.kind]),
            }
        )
    elif meant:
        show(guess_page(meant, page_here()))
    else:
        show(failure_page(failure, knowledge, here, page=page_here(), recovered=recovered))
    return NOT_NAMED if failure.kind == FailureKind.UNKNOWN else NAMED


def _refuse_name(text: str, knowledge: FailureKnowledge) -> None:
    """Refuse what can only be the name of a file, a failure or a workaround that does not exist."""
    if FILE_NAME.fullmatch(text):
        raise click.BadParameter(f"file {text!r} does not exist.", param_hint="TEXT")
    if SLUG.fullmatch(text) and "-" in text:
        known = (*knowledge.kinds, *load_remedies(), *doctors_knowledge().rules)
        unknown = no_such("failure, workaround or rule", text, known, FIND_FAILURE)
        raise click.BadParameter(unknown, param_hint="TEXT")


def _show_message(message: KnownMessage, line: str, *, as_json: bool) -> None:
    line = redactor_here().text(line)
    if as_json:
        show_json({"version": 1, "message": message, "line": line})
    else:
        show(message_page(message, line, page_here()))


def _given(text: str) -> str:
    """Return the text itself, what is piped in, or the end of the file of that name."""
    if text == "-":
        return _end_of(sys.stdin.buffer)
    try:
        if text.startswith("/dev/fd/"):  # a pipe of the shell: explain <(dmesg)
            with open(text, "rb") as file:  # noqa: PTH123 - no path of a file
                return _end_of(file)
        return read_tail(text, MAX_BYTES).decode("utf-8", "replace")
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
    size = 0
    while piece := stream.read(PIECE_BYTES):
        pieces.append(piece)
        size += len(piece)
        while size - len(pieces[0]) >= MAX_BYTES:
            size -= len(pieces.popleft())
    return b"".join(pieces)[-MAX_BYTES:].decode("utf-8", "replace")
