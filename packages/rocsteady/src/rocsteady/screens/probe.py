"""The results of probes, one line each as they finish, and of a drill, one line a fault."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from rocsteady.colours import BOLD, DIM, GREEN, RED
from rocsteady.model import FailureKind, ProbeOutcome, Value
from rocsteady.probe.folders import changes_in_words
from rocsteady.probe.values import VERBS, DrillResult, FaultResult, ProbeLine
from rocsteady.screens.screen import Column, Page
from rocsteady.wording import capitalized, duration, plural

WORD = 9  # columns of the outcome
MAX_TITLE = 29  # columns; a longer one has a line of its own
WORDS = {
    ProbeOutcome.OK: "ok",
    ProbeOutcome.WRONG: "WRONG",
    ProbeOutcome.EXCEPTION: "ERROR",
    ProbeOutcome.HANG: "HANG",
    ProbeOutcome.CRASH: "CRASH",
    ProbeOutcome.NO_MEMORY: "MEMORY",
    ProbeOutcome.UNKILLABLE: "STUCK",
    ProbeOutcome.WENT_DOWN: "DOWN",
    ProbeOutcome.NOT_RUN: "not run",
}


class ProbeSummary(Value, frozen=True, kw_only=True):
    version: int = 1  # of the JSON lines
    level: str
    software: str
    ok: int
    wrong: int
    not_run: int
    interrupted: bool = False
    conclusion: tuple[str, ...]


def title_column(titles: Iterable[str]) -> int:
    longest = max((len(title) for title in titles), default=0)
    return WORD + min(longest, MAX_TITLE) + 2


def render_probe(line: ProbeLine, *, column: int, page: Page) -> str:
    word = WORDS[line.observation.outcome]
    style = f"{BOLD} {RED}" if line.observation.bad else GREEN
    style = DIM if line.observation.outcome is ProbeOutcome.NOT_RUN else style
    label = f"{word:{WORD}}{line.observation.title}"
    page.row(label, result_text(line), indent=2, column=column, style=style)
    return str(page)


def result_text(line: ProbeLine) -> str:
    seen = line.observation
    if seen.outcome is ProbeOutcome.NOT_RUN:
        return seen.why
    if not seen.bad:
        return _went_well(line)
    place = f", {'stuck' if seen.outcome in _STUCK else ''} in {seen.place}" if seen.place else ""
    after = (
        f" after {seen.tries:,} {line.what}" if seen.tries and seen.outcome not in _STUCK else ""
    )
    why = seen.why.strip().splitlines()[0] if seen.why.strip() else seen.outcome.value
    return " ".join(f"{why}{after}{place}".split())


def _went_well(line: ProbeLine) -> str:
    seen = line.observation
    if seen.tries <= 1:
        return duration(seen.seconds)
    text = f"0 failures in {seen.tries:,} {line.what}"
    if seen.worst:
        text += f"; error {seen.worst:.2g} of its bound"
    return text


def conclusion(lines: Sequence[ProbeLine]) -> list[str]:
    """Summarise the failures, a sentence a probe."""
    groups: dict[str, list[ProbeLine]] = {}
    for line in lines:
        groups.setdefault(line.observation.probe, []).append(line)
    sentences = [_sentence(name, group) for name, group in groups.items()]
    failures = [sentence for sentence in sentences if sentence]
    if failures or not lines:
        return failures
    run = [line for line in lines if line.observation.outcome is not ProbeOutcome.NOT_RUN]
    skipped = len(lines) - len(run)
    also = f"; {skipped} not run" if skipped else ""
    return [f"No failures in {plural(len(run), 'probe')}{also}."]


def render_stories(lines: Sequence[ProbeLine], now: str, *, page: Page) -> str:
    if not lines:
        page.paragraph("No probes have run on this machine yet. To run them: rocsteady probe")
        return str(page)
    page.paragraph(f"Current software: {now}.")
    for line in lines:
        page.line()
        _story(page, line, now)
    return str(page)


def _story(page: Page, line: ProbeLine, now: str) -> None:
    seen = line.observation
    page.line(f"{seen.title}  {seen.outcome.value}", style=BOLD)
    day = time.strftime("%Y-%m-%d %H:%M", time.localtime(seen.at))
    rows = [
        ("date", day),
        ("result", result_text(line)),
        ("bound", _bound(line)),
        ("failure", seen.failure),
        ("figures", ", ".join(f"{name} {value:.4g}" for name, value in seen.figures.items())),
        ("reported", ", ".join(f"{name} {value}" for name, value in seen.details.items() if value)),
        ("evidence", seen.evidence),
        ("other software", "" if seen.software == now else seen.software),
    ]
    for label, text in rows:
        if text:
            page.row(label, text, indent=2, column=19)


def _bound(line: ProbeLine) -> str:
    """Return what so many tries without a failure prove."""
    if line.observation.bad or line.one_in <= 1:
        return ""
    return f"fewer than 1 in {line.one_in:,} fails, with 95 % confidence"


_STUCK = (ProbeOutcome.HANG, ProbeOutcome.UNKILLABLE)


def _sentence(name: str, group: Sequence[ProbeLine]) -> str:
    """Return how a probe went wrong, with which variants, and with which not."""
    wrong: dict[ProbeOutcome, list[str]] = {}
    for line in group:
        if line.observation.bad:
            wrong.setdefault(line.observation.outcome, []).append(line.observation.variant)
    if not wrong:
        return ""
    parts = []
    for outcome, variants in wrong.items():
        named = _listed([variant for variant in variants if variant])
        here = " here" if outcome is not ProbeOutcome.WENT_DOWN else ""
        parts.append(f"{VERBS[outcome]}{here}{f' with {named}' if named else ''}")
    bad = {variant for variants in wrong.values() for variant in variants}
    fine = [
        line.observation.variant
        for line in group
        if line.observation.outcome is ProbeOutcome.OK and line.observation.variant not in bad
    ]
    but = f", but not with {_listed(fine)}" if any(fine) else ""
    return f"{name.replace('-', ' ').capitalize()} {', '.join(parts)}{but}."


def _listed(words: Sequence[str]) -> str:
    unique = list(dict.fromkeys(words))
    return " or ".join(filter(None, [", ".join(unique[:-1]), unique[-1]])) if unique else ""


FAULT_COLUMNS = (
    Column("fault"),
    Column("detected in"),
    Column("identified as"),
    Column("action", least=16),
    Column("resumed at"),
)
ACTION = 3  # the column


def render_drill(result: DrillResult, *, page: Page) -> str:
    styles = {
        (number, ACTION): GREEN if fault.survived else RED
        for number, fault in enumerate(result.faults)
        if fault.fired
    }
    page.table(FAULT_COLUMNS, [_cells(fault) for fault in result.faults], styles)
    page.line()
    for sentences in _sentences(result):
        page.paragraph(sentences)
    if result.kept:
        page.paragraph("Logs and evidence of the drill:")
        page.line(f"  {result.kept}")
    if result.next_command:
        page.line(f"next: {result.next_command}")
    return str(page)


def _cells(fault: FaultResult) -> tuple[str, ...]:
    if not fault.fired:
        return (fault.fault, "-", "-", "not reached", "-")
    seen = "-" if fault.seen_after is None else duration(fault.seen_after)
    at = fault.went_on_from
    resumed = "-" if at is None else f"step ~{at:,}" if at else "the start"
    return (fault.fault, seen, fault.called or "-", fault.done, resumed)


def _sentences(result: DrillResult) -> list[str]:
    survived = sum(fault.survived for fault in result.faults)
    twice = result.steps_twice
    again = f"; about {plural(twice, 'step was', 'steps were')} repeated" if twice else ""
    sentences = [f"The script survived {survived} of {plural(len(result.faults), 'fault')}{again}."]
    if not result.can_resume and any(fault.fired for fault in result.faults):
        sentences.append(
            "No way to resume this script is known. Without one, it can only be started"
            " again from the beginning, which rocsteady does not do on its own after real progress."
            " Set [resume] in rocsteady.toml."
        )
    poisoned = [it for it in result.faults if it.called == FailureKind.NAN_LOSS and not it.survived]
    if poisoned:
        sentences.append(
            "The loss stayed NaN, and the script did not notice. If it raised an error, rocsteady"
            " could resume from the last checkpoint."
        )
    sentences.append(f"{capitalized(changes_in_words(result.changed))}.")
    own = ("faults of a real GPU",) if result.on_gpu else ()
    untried = ", ".join((*result.not_tried, *own))
    return [" ".join(sentences), f"Not tried: {untried}." if untried else ""]
