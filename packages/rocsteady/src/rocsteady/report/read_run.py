"""Reads all that a report needs: the journal, the machine at the start, the evidence; redacted."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path

import msgspec
from msgspec.structs import replace
from rocsteady_train.untrusted_file import read_head, read_tail

from rocsteady.doctor.knowledge.failures import load_failures
from rocsteady.doctor.knowledge.values import SCRIPT, Fix
from rocsteady.doctor.machine_at_start import machine_at_start
from rocsteady.hangs.proof.wait_set import Waiter
from rocsteady.model import FailureKind
from rocsteady.printable import printable
from rocsteady.report.source_lines import SourceExcerpt, script_folders, source_around
from rocsteady.report.story import IncidentEvidence, RunFacts, Story, build_story
from rocsteady.report.wait_diagram import frame_at
from rocsteady.run.checkpoints.script_resume import can_resume
from rocsteady.store.forecast import story_ahead
from rocsteady.store.journal import Journal
from rocsteady.store.location import run_folder
from rocsteady.store.redaction import redactor_here, shown_command
from rocsteady.store.run_account import crashed_attempts
from rocsteady.store.values import Run, RunLine, RunRecord
from rocsteady.typed_values import convert, read_json

INCIDENTS = 40  # of many, the last; their evidence is read
STACKS, WAITS, LOG_TAIL = 24 * 1024, 8 * 1024, 8 * 1024  # bytes
WAITERS = 1 << 20  # bytes
BUNDLED_BYTES = 1024 * 1024  # of a file
BUNDLED = ("wait-set.txt", "stacks.txt", "kernel.txt", "memory.json", "gpu.json", "variables.json",
           "log-tail.txt")  # fmt: skip


def read_story(journal: Journal, line: RunLine, *, now: float) -> Story:
    return build_story(read_facts(journal, line, now=now))


def read_facts(journal: Journal, line: RunLine, *, now: float) -> RunFacts:
    """Read everything about a run, redacted so that it can be sent."""
    record = story_ahead(journal.story(line.run.name), journal.runs(), now=now)
    folder = run_folder(journal.place.folder, line.run.name)
    start = machine_at_start(folder)
    folders = script_folders(journal.place.folder.parent, line.run.command)
    crashed = crashed_attempts(record)
    crash = load_failures().kinds[FailureKind.MACHINE_WENT_DOWN].words if crashed else ""
    facts = RunFacts(
        at=now,
        record=record,
        is_running=bool(line.alive) and line.run.ended is None,
        resumes=can_resume(line.run, journal),
        diagnosis=start.diagnosis if start else None,
        variables=start.variables if start else {},
        evidence=tuple(
            _evidence(folder, each.number, each.cause, folders, at=each.at)
            for each in record.incidents[-INCIDENTS:]
        ),
        failed_at=_failed_at(record, folders),
        crash=" ".join(crash.split()),
        advice=_advice(record),
        log_tail=_log_tail(folder),
    )
    return _redacted(facts)


def _redacted(facts: RunFacts) -> RunFacts:
    """Redact everything. Of progress, most of a long run, only names could hold something."""
    redactor, progress = redactor_here(), facts.record.progress
    rest = replace(facts, record=replace(facts.record, progress=()))
    clean = convert(redactor.value(msgspec.to_builtins(rest)), RunFacts)
    used = {name for bucket in progress for name in (*bucket.seconds_in, *bucket.gauges)}
    names = {name: redactor.text(name) for name in used}
    if any(name != safe for name, safe in names.items()):
        progress = tuple(
            replace(
                bucket,
                seconds_in={names[name]: value for name, value in bucket.seconds_in.items()},
                gauges={names[name]: value for name, value in bucket.gauges.items()},
            )
            for bucket in progress
        )
    return replace(clean, record=replace(clean.record, progress=progress))


def bundle(journal: Journal, line: RunLine, page: str) -> bytes:
    """Return a zip of the page and of the evidence, redacted."""
    folder, redactor = run_folder(journal.place.folder, line.run.name), redactor_here()
    content = BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("report.html", page)
        for kind in ("incident", "evidence"):  # of a hang, and of how an attempt ended
            for number in sorted(_numbers(folder, kind))[-INCIDENTS:]:
                for path in (folder / f"{kind}-{number}" / name for name in BUNDLED):
                    if text := _text(path, BUNDLED_BYTES):
                        name = str(path.relative_to(folder))
                        archive.writestr(name, printable(redactor.text(text)))
    return content.getvalue()


def _numbers(folder: Path, kind: str) -> Iterator[int]:
    names = (path.name.removeprefix(f"{kind}-") for path in folder.glob(f"{kind}-*"))
    return (int(name) for name in names if name.isdecimal())


def _evidence(
    folder: Path, number: int, place: str, folders: Sequence[Path], *, at: float
) -> IncidentEvidence:
    incident = folder / f"incident-{number}"
    waits = _text(incident / "wait-set.txt", WAITS).splitlines()
    waiters = _waiters(incident / "waits.json")
    frame = frame_at(waiters, place)
    return IncidentEvidence(
        incident=number,
        waits=tuple(line for line in waits if line.strip()),
        waiters=waiters,
        source=source_around(*frame, folders, at=at) if frame else None,
        stacks=_text(incident / "stacks.txt", STACKS),
    )


def _failed_at(record: RunRecord, folders: Sequence[Path]) -> dict[int, SourceExcerpt]:
    """Return the lines around each error in the script, of the last ones."""
    found = {}
    for row in record.failures[-INCIDENTS:]:
        frame = frame_at((), row.failure.line)
        source = source_around(*frame, folders, at=row.at) if frame else None
        if source is not None:
            found[row.attempt] = source
    return found


def _waiters(path: Path) -> tuple[Waiter, ...]:
    return read_json(path, tuple[Waiter, ...], WAITERS, follow=False) or ()


def _advice(record: RunRecord) -> dict[str, Fix]:
    kinds = {row.failure.kind for row in record.failures}
    if any(each.result and each.result.not_finite for each in record.attempts):
        kinds.add(FailureKind.NAN_LOSS)
    known = load_failures().kinds if kinds else {}
    fixes = {kind: known[kind].fix or known[kind].advice for kind in kinds & known.keys()}
    return {kind: of_run(fix, record.run) for kind, fix in fixes.items() if fix is not None}


def of_run(fix: Fix, run: Run) -> Fix:
    """Return the first thing to do for a run of rocsteady, with its own command."""
    known = f"rocsteady run -- {SCRIPT}"
    first = next((step for step in (fix, *fix.then) if known not in step.commands), fix)
    typed = first.typed(shown_command(run.command))
    return replace(fix, text=first.text, commands=typed)


def _log_tail(folder: Path) -> str:
    logs = [path for path in folder.glob("attempt-*.log") if path.stem[8:].isdecimal()]
    last = max(logs, key=lambda path: int(path.stem[8:]), default=None)
    if last is None:
        return ""
    try:
        tail = read_tail(last, LOG_TAIL, follow=False).decode("utf-8", "replace")
    except OSError:
        return ""
    return "\n".join(line.rpartition("\r")[2] for line in tail.splitlines()[-40:])


def _text(path: Path, limit: int) -> str:
    try:
        return read_head(path, limit, follow=False).decode("utf-8", "replace")
    except OSError:
        return ""
