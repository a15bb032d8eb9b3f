"""The text of a job file that ``init`` writes: each part with what it rests on."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from rocsteady.model import Value
from rocsteady.plan.script_traces import EPOCH, LogCounter, epochs_in, of_the_job
from rocsteady.plan.trials import TrialResult, drill_step
from rocsteady.plan.values import DRILL_STEP
from rocsteady.run.checkpoints.resume_detection import ResumeMethod, ResumeSign
from rocsteady.run.checkpoints.script_facts import Amount, ScriptFacts, amounts, resume_option
from rocsteady.run.job.done_when import matches
from rocsteady.run.job.values import CHECKPOINT, Resume, Total
from rocsteady.wording import duration, plural, size

NEAR_STEPS = 0.25  # a counter that grows by so much more or less than the steps still counts steps
FINE_VALUES = 8  # values of a counter in a short run, with which it can stand in for steps
PRINTED_LATE = 1.5  # seconds by which a printed line may come later than its step
NOT_SEEN = "The total amount of work is unknown, so there is no forecast."
IF_ONE_EACH = "if each batch is one optimizer step"
EXAMPLE = Resume(arguments=("--resume", CHECKPOINT), checkpoints=("checkpoints/*.pt",))
BEST = re.compile(r"(?i)best[^/]*$")


class Work(Value, frozen=True, kw_only=True):
    total: Total | None = None
    why: str = NOT_SEEN
    sure: bool = False


def how_much(command: Sequence[str], result: TrialResult, facts: ScriptFacts, folder: Path) -> Work:
    if result.watched.total:
        return _steps(result.watched.total, "Reported by the script.")
    if not result.watched.counted:
        return _by_lines(command, result, facts, folder)
    if result.finished and not _earlier(result, folder):
        return _steps(result.step, "The script finished after this many steps.")
    return _by_steps(command, result, facts, folder)


def _by_steps(
    command: Sequence[str], result: TrialResult, facts: ScriptFacts, folder: Path
) -> Work:
    steps = next(amounts("step", command, facts, folder), None)
    counter = of_the_job(
        result.watched.printed.counters,
        batches=result.size.batches if result.size else 0,
        finished=result.finished,
    )
    if counter is not None and counter.total and not (steps and steps.sure):
        return _by_counter(counter, result)
    epochs = _epochs(command, result, facts, folder)
    if steps and (steps.sure or not (epochs and epochs.sure)):
        return _said(steps, Total(steps=steps.count))
    return _by_epochs(epochs, result, facts) if epochs else Work()


def _steps(count: int, why: str) -> Work:
    return Work(total=Total(steps=count), why=why, sure=True)


def _earlier(result: TrialResult, folder: Path) -> bool:
    """Whether there are checkpoints of an earlier run, which it may have gone on from."""
    own = result.watched.resume.checkpoints if result.watched.resume else ()
    return any(any(matches(folder, each)) for each in (*own, *result.watched.checkpoints))


def _said(amount: Amount, total: Total) -> Work:
    return Work(total=total, why=f"From {amount.source}.", sure=amount.sure)


def _by_counter(counter: LogCounter, result: TrialResult) -> Work:
    """Take the total of a counter of steps; one of something else counts in its own units."""
    shown = f"{counter.word} {counter.n}/{counter.total}".strip()
    if counter.total is not None and _one_each(counter, result):
        return Work(total=Total(steps=counter.total), why=f"The script printed {shown}.", sure=True)
    if counter.each and counter.total and counter.values < FINE_VALUES:
        why = (
            f"The script printed {shown}, with about {counter.each:,.0f} steps from one to the"
            " next."
        )
        return Work(total=Total(steps=max(1, round(counter.each * counter.total))), why=why)
    why = (
        f"The script printed {shown}, which does not count optimizer steps; progress is counted in"
        " these units."
    )
    return Work(total=Total(log=counter.pattern), why=why, sure=True)


def _one_each(counter: LogCounter, result: TrialResult) -> bool:
    if counter.each is None:  # it was printed once only
        return counter.word in {"", "step", "iter", "iteration"}
    rate = result.pace.rate if result.pace else result.step / max(result.seconds, 1.0)
    return abs(counter.each - 1) <= max(
        NEAR_STEPS, PRINTED_LATE * rate / (counter.n - counter.first)
    )


def _epochs(
    command: Sequence[str], result: TrialResult, facts: ScriptFacts, folder: Path
) -> Amount | None:
    """Return how many epochs there are: by the command, by what was printed, or by the script."""
    stated = list(amounts(EPOCH, command, facts, folder))
    printed = epochs_in(result.watched.printed.counters)
    if printed is None or not printed.total or (stated and stated[0].sure):
        return stated[0] if stated else None
    shown = f"epoch {printed.n}/{printed.total} in its output"
    more = next((each for each in stated if each.count == printed.total + 1), None)
    if more is not None:  # as Lightning prints it: 0/9 to 9/9 are ten
        return Amount(count=more.count, source=f"{shown}, from 0, and {more.source}", sure=True)
    several = sum(any("epochs" in flag for flag in each.flags) for each in facts.options) > 1
    return Amount(count=printed.total, source=shown, sure=printed.first > 0 and not several)


def _by_epochs(epochs: Amount, result: TrialResult, facts: ScriptFacts) -> Work:
    """Turn epochs into steps, as far as it is known how many there are in one."""
    batches = result.size.batches if result.size else 0
    printed = epochs_in(result.watched.printed.counters)
    each = printed.each if printed and printed.each else None
    rate = result.pace.rate if result.pace else 0.0
    if each and abs(each - batches) > max(NEAR_STEPS * batches, PRINTED_LATE * rate):
        count = max(1, round(each))
        why = (
            f"{epochs.count:,} epochs, from {epochs.source}; about {count:,} steps per epoch were"
            " observed."
        )
        return Work(total=Total(steps=epochs.count * count), why=why)
    if batches:
        why = f"{epochs.count:,} epochs of {batches:,} batches, from {epochs.source}"
        sure = epochs.sure and bool(each or not facts.accumulates)
        why += "." if each else f", {IF_ONE_EACH}."
        return Work(total=Total(steps=epochs.count * batches), why=why, sure=sure)
    if printed is not None:
        total = Total(log=printed.pattern, epochs=None if printed.total else epochs.count)
        return _said(epochs, total)
    return _said(epochs, Total(epochs=epochs.count))


def _by_lines(
    command: Sequence[str], result: TrialResult, facts: ScriptFacts, folder: Path
) -> Work:
    """Count by what is printed, where no step can be seen."""
    counters = result.watched.printed.counters
    epochs = epochs_in(counters)
    counter = of_the_job(counters, finished=result.finished) or epochs
    if epochs is not None and epochs.total and (counter is None or not counter.total):
        counter = epochs
    if counter is None:
        return _by_steps(command, result, facts, folder) if result.watched.torch else Work()
    shown = f"{counter.word} {counter.n}"
    if counter.total:
        why = (
            "No optimizer steps can be observed; the script printed"
            f" {shown.strip()}/{counter.total}."
        )
        return Work(total=Total(log=counter.pattern), why=why, sure=not result.watched.torch)
    amount = next(amounts(counter.word, command, facts, folder), None)
    if amount is None and result.finished:
        amount = Amount(count=counter.n, source="its last line when the script finished", sure=True)
    if amount is None:
        return Work(why=f"The script printed {shown}, but not out of how many.")
    unit = "epochs" if counter.word == EPOCH else "steps"
    why = f"No optimizer steps can be observed; the script printed {shown}. Total: {amount.source}."
    return Work(total=Total(log=counter.pattern, **{unit: amount.count}), why=why, sure=amount.sure)


class GoingOn(Value, frozen=True, kw_only=True):
    resume: Resume | None = None
    why: str
    example: Resume | None = EXAMPLE  # where there is no answer
    found_by_run: bool = False  # it needs no [resume]
    drill_step: int = DRILL_STEP
    do: tuple[str, ...] = ()  # to make it resume


def going_on(result: TrialResult, facts: ScriptFacts, method: ResumeMethod) -> GoingOn:
    """Return how the script goes on; only from what was seen, or is known of its trainer."""
    if result.watched.resume is not None:
        why = "The script reports that it saves and resumes on its own."
        return GoingOn(resume=result.watched.resume, why=why, drill_step=drill_step(result))
    way, resume = _way(facts, method)
    written, seen = _saves(result, method)
    if resume is None:
        if method.why_not:
            code = ("Write instead:", *method.code) if method.code else ()
            flag = ("Or, without editing it:", "resume_trainer = true") if method.by_trainer else ()
            do = (*code, "Then: rocsteady init --force.", *flag)
            return GoingOn(why=f"It does not resume: {method.why_not}.", do=do, example=None)
        why = f"{seen}: {', '.join(written)}. No option to resume from them was found."
        none = f"No checkpoint was written in the {duration(result.seconds)} of the short run."
        example = replace(EXAMPLE, checkpoints=written or EXAMPLE.checkpoints)
        return GoingOn(why=why if written else none, example=example)
    if not written:
        why = (
            f"No checkpoint was written in the {duration(result.seconds)} of the short run. How the"
            f" script resumes: {way}."
        )
        found = method.how is not ResumeSign.UNKNOWN
        why += "" if found else " Name the checkpoints it can resume from."
        example = replace(resume, checkpoints=EXAMPLE.checkpoints)
        return GoingOn(why=why, example=example, found_by_run=found)
    why = f"How the script resumes: {way}. {seen}. Resuming was not tested."
    resume = replace(resume, checkpoints=written)
    return GoingOn(resume=resume, why=why, drill_step=drill_step(result))


def _way(facts: ScriptFacts, method: ResumeMethod) -> tuple[str, Resume | None]:
    """Return how it resumes, for people and as far as it is known without its checkpoints."""
    if method.how is not ResumeSign.UNKNOWN:
        told = () if method.how is ResumeSign.COMMAND else method.arguments
        variable = {method.variable: CHECKPOINT} if method.variable else {}
        where = f" ({method.where})" if method.where else ""
        typed = " ".join((*(f"{name}={CHECKPOINT}" for name in variable), *method.arguments))
        resume = Resume(arguments=told, environment=variable, checkpoints=())
        return f"{typed or 'by itself'}{where}", resume
    option = None if method.why_not else resume_option(facts)
    if option is not None:
        arguments = option.flags[-1:] if option.alone else (option.flags[-1], CHECKPOINT)
        way = f"{option.flags[-1]} in {facts.name}, line {option.line}"
        return way, Resume(arguments=arguments, checkpoints=())
    if facts.goes_on and not method.why_not:
        way = f"the Trainer resumes on its own ({facts.name}, line {facts.goes_on})"
        return way, Resume(checkpoints=())
    return "", None


def _saves(result: TrialResult, method: ResumeMethod) -> tuple[tuple[str, ...], str]:
    """Return the patterns of the checkpoints, and who says so."""
    by_trainer = method.checkpoints
    for written, seen in (
        (result.watched.checkpoints, "Written in the short run"),
        (by_trainer, f"As {method.where or 'its library'} names them"),
        (result.watched.found, "Found in this folder"),
    ):
        if written:
            return tuple(each for each in written if not BEST.search(each)) or written, seen
    return (), ""


COMMENT_WIDTH = 96
GUESS = "A guess; check it. "
LIMITS = ('deadline = "36h"  # or 2026-11-30T18:00:00', "budget = 25")


class Draft(Value, frozen=True, kw_only=True):
    command: tuple[str, ...]
    day: str  # on which it was written, 2026-11-15
    seen: tuple[str, ...]  # sentences about the short run
    work: Work
    going_on: GoingOn
    models: tuple[str, ...] = ()  # that were written when it ended by itself


def job_text(draft: Draft) -> str:
    parts = [
        _comment(
            f"Written by rocsteady init on {draft.day} from a short run on this machine. Observed:",
            *(f"- {sentence}" for sentence in draft.seen),
        ),
        f"command = {_list(draft.command)}",
        _total(draft.work),
        _comment("Deadline, and budget in dollars:", *LIMITS),
        _resume(draft.going_on),
        _done_when(draft.models),
    ]
    return "\n\n".join(parts) + "\n"


def seen(result: TrialResult) -> Iterator[str]:
    pace = result.pace
    if pace is not None:
        unit = "steps" if result.watched.counted else "steps, as the script prints them,"
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


def _resume(going_on: GoingOn) -> str:
    if going_on.resume is not None:
        why = f"{going_on.why} Test it with: rocsteady drill --faults kill@{going_on.drill_step}"
        return "\n".join([_comment(why), *_resume_lines(going_on.resume)])
    stays = "What cannot resume is not restarted once it has saved, or has trained for 10 min."
    if going_on.example is None:
        return _comment(going_on.why, *going_on.do, stays)
    if going_on.found_by_run:
        stays = "rocsteady run looks for the checkpoints itself."
        example = _resume_lines(going_on.example)
        return _comment(going_on.why, f"{stays} To name them:", *example)
    return _comment(going_on.why, f"{stays} To resume:", *_resume_lines(going_on.example))


def _resume_lines(resume: Resume) -> Iterator[str]:
    yield "[resume]"
    if resume.arguments:
        yield f"arguments = {_list(resume.arguments)}"
    if resume.environment:
        pairs = ((name, _text(value)) for name, value in resume.environment.items())
        yield f"environment = {_table(pairs)}"
    yield f"checkpoints = {_list(resume.checkpoints)}"


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
            # What a script printed, or a file is called, must not end the comment.
            "".join(mark if mark.isprintable() else "?" for mark in line),
            COMMENT_WIDTH - 2,
            subsequent_indent="  " if line.startswith("- ") else "",
            break_long_words=False,
            break_on_hyphens=False,
        )
    )
    return "\n".join(f"# {piece}" for piece in wrapped)


def _list(words: Iterable[str]) -> str:
    return f"[{', '.join(map(_text, words))}]"


def _table(pairs: Iterable[tuple[str, str]]) -> str:
    return f"{{ {', '.join(f'{key} = {value}' for key, value in pairs)} }}"


def _text(word: str) -> str:
    """Quote as TOML does: JSON's escapes are among its own, and it has one more."""
    return json.dumps(word, ensure_ascii=False).replace("\x7f", "\\u007f")
