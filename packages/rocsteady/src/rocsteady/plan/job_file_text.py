"""The text of a job file that ``init`` writes: each part with what it rests on."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping

from rocsteady.model import Value
from rocsteady.plan.trials import TrialResult
from rocsteady.plan.work_amount import GoingOn, Work
from rocsteady.run.job.values import Total
from rocsteady.wording import duration, plural, size

WIDTH = 96
GUESS = "A guess; check it. "


class Draft(Value, frozen=True, kw_only=True):
    command: tuple[str, ...]
    day: str  # on which it was written, 2026-11-15
    seen: tuple[str, ...]  # sentences about the short run
    work: Work
    going_on: GoingOn
    models: tuple[str, ...] = ()  # that were written when it ended by itself
    deadline: str = ""  # as a person typed it
    budget: float | None = None  # dollars


def seen(result: TrialResult) -> tuple[str, ...]:
    return tuple(_seen(result))


def job_text(draft: Draft) -> str:
    parts = [
        _comment(
            f"Written by rocsteady init on {draft.day} from a short run on this machine. Observed:",
            *(f"- {sentence}" for sentence in draft.seen),
        ),
        f"command = {_list(draft.command)}",
        _total(draft.work),
        _limits(draft),
        _resume(draft.going_on),
        _done_when(draft.models),
    ]
    return "\n\n".join(parts) + "\n"


def _seen(result: TrialResult) -> Iterator[str]:
    pace = result.pace
    if pace is not None:
        unit = "steps" if result.watched.counted else "counts of its own"
        yield (
            f"{pace.rate:.3g} {unit} per second ({pace.low:.3g} to {pace.high:.3g}, 90 %),"
            f" after {duration(pace.starting)} of startup"
        )
        if pace.memory:
            yield f"{size(pace.memory)} of host memory at most"
    if result.finished:
        steps = f" after {result.step:,} steps" if result.step else ""
        yield f"the script finished in {duration(result.seconds)}{steps}"
    elif pace is None:
        yield f"{result.step or 'no'} steps in {duration(result.seconds)}"
    if result.loader is not None:
        workers = plural(result.loader.workers, "worker")
        most = (
            f"at most {workers} ({result.loader.context})"
            if result.loader.workers
            else "no workers"
        )
        yield f"{plural(result.loader.loaders, 'loader')}, {most}"
    if result.size is not None:
        batches = f", {result.size.batches:,} batches per epoch" if result.size.batches else ""
        batch = f"{result.size.batch:,} samples per batch{batches}; " if result.size.batch else ""
        yield f"{batch}{result.size.parameters:,} trainable parameters"
    if result.watched.checkpoints:
        yield f"checkpoints written: {', '.join(result.watched.checkpoints)}"
    if result.watched.models:
        yield f"models written: {', '.join(result.watched.models)}"


def _total(work: Work) -> str:
    if work.total is None:
        return _comment(work.why, "total = { steps = 10000 }")
    lead = "" if work.sure else GUESS
    return f"{_comment(lead + work.why)}\ntotal = {_table(_of_total(work.total))}"


def _of_total(total: Total) -> Iterator[tuple[str, str]]:
    if total.log:
        yield "log", f"'{total.log}'" if "'" not in total.log else _text(total.log)
    for key, count in (("steps", total.steps), ("epochs", total.epochs)):
        if count is not None:
            yield key, str(count)


def _limits(draft: Draft) -> str:
    due = '# deadline = "36h"  # or 2026-11-30T18:00:00'
    due = f"deadline = {_text(draft.deadline)}" if draft.deadline else due
    dollars = "# budget = 25" if draft.budget is None else f"budget = {draft.budget:g}"
    return "\n".join((_comment("Deadline, and budget in dollars:"), due, dollars))


def _resume(going_on: GoingOn) -> str:
    resume = going_on.resume
    if resume is None:
        return _comment(
            going_on.why,
            "A script that cannot resume is not restarted after it has made progress. To resume:",
            "[resume]",
            'arguments = ["--resume", "{checkpoint}"]',
            f"checkpoints = {_list(going_on.written or ('checkpoints/*.pt',))}",
        )
    lines = [
        _comment(f"{going_on.why} Test it with: rocsteady drill --faults kill@STEP"),
        "[resume]",
    ]
    if resume.arguments:
        lines.append(f"arguments = {_list(resume.arguments)}")
    if resume.environment:
        pairs = ((name, _text(value)) for name, value in resume.environment.items())
        lines.append(f"environment = {_table(pairs)}")
    return "\n".join([*lines, f"checkpoints = {_list(resume.checkpoints)}"])


def _done_when(models: tuple[str, ...]) -> str:
    if not models:
        return _comment(
            "No model was written in the short run. To require one before the job counts as done:",
            "[done_when]",
            'files = [{ path = "model.pt", kind = "model" }]',
        )
    files = (_table((("path", _text(path)), ("kind", '"model"'))) for path in models)
    return "\n".join(
        [
            _comment("Written by the time the script finished."),
            "[done_when]",
            f"files = [{', '.join(files)}]",
        ]
    )


def _comment(*lines: str) -> str:
    wrapped = (
        piece
        for line in lines
        for piece in textwrap.wrap(
            _printable(line),
            WIDTH - 2,
            subsequent_indent="  " if line.startswith("- ") else "",
            break_long_words=False,
            break_on_hyphens=False,
        )
    )
    return "\n".join(f"# {piece}" for piece in wrapped)


def _printable(text: str) -> str:
    """Keep what a script printed, or a file is called, from ending the comment."""
    return "".join(mark if mark.isprintable() else "?" for mark in text)


def _list(words: Iterable[str]) -> str:
    return f"[{', '.join(map(_text, words))}]"


def _table(pairs: Iterable[tuple[str, str]] | Mapping[str, str]) -> str:
    inside = pairs.items() if isinstance(pairs, Mapping) else pairs
    return f"{{ {', '.join(f'{key} = {value}' for key, value in inside)} }}"


def _text(word: str) -> str:
    """Quote as TOML does: JSON's escapes are among its own, and it has one more."""
    return json.dumps(word, ensure_ascii=False).replace("\x7f", "\\u007f")
