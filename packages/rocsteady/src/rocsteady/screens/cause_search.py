"""The result of a search for a cause: what fails, whether it fails alone, and what cures it."""

from __future__ import annotations

from collections.abc import Iterator

from rocsteady.colours import BOLD, GREEN, RED
from rocsteady.model import ProbeOutcome
from rocsteady.probe.cause_search import Cause, Cure
from rocsteady.probe.experiment import Experiment
from rocsteady.probe.folders import changes_in_words
from rocsteady.probe.recorded_operations import ComparedNumbers, Operation
from rocsteady.probe.values import VERBS
from rocsteady.screens.screen import Page
from rocsteady.store.redaction import shown_command
from rocsteady.wording import capitalized, duration, plural

COLUMN = 12
TENSORS, UNCOMPARED = 4, 6  # that are listed
UNCONFIRMED = (
    "unconfirmed: this search has not run on a GPU yet. If it goes wrong on yours, please send its"
    " report."
)


def render_cause(cause: Cause, *, page: Page) -> str:
    if cause.staged:
        page.paragraph("STAGED FAULT: put there for a rehearsal, and nothing of this machine.")
    for label, text, style in _rows(cause):
        page.row(label, text, column=COLUMN, style=style)
    if cause.operation is not None and cause.operation.device != "cpu":
        page.paragraph(UNCONFIRMED)
    page.paragraph(f"{capitalized(changes_in_words(cause.changed))}.")
    return str(page)


def _rows(cause: Cause) -> Iterator[tuple[str, str, str]]:
    tries = cause.reproducing
    if tries.failed:
        step = next((each.step for each in tries.tries if each.step), 0)
        at = f" at step {step:,}" if step else ""
        count = len(tries.tries)
        rate = f"{tries.failed} of {plural(count, 'try', 'tries')} {_verb(tries, count)}{at}"
        took = duration(tries.seconds)
        yield "script", f"{rate}, kernels serialized ({took})", f"{BOLD} {RED}"
        yield from _operation(cause)
    else:
        yield "script", no_failure(cause), GREEN
    if cause.numbers:
        yield "compared", _compared(cause.numbers), ""
    if cause.stopped:
        yield "stopped", cause.stopped, ""
    if cause.cure is not None and (command := command_with(cause, cause.cure)):
        yield "to go on", command, GREEN


def _operation(cause: Cause) -> Iterator[tuple[str, str, str]]:
    if cause.operation is None:
        yield "operation", _nobody(cause), ""
        return
    yield "operation", described(cause.operation), BOLD
    for text in (cause.operation.where, cause.how):
        if text:
            yield "", text, ""
    yield "alone", _alone(cause), ""
    if not cause.cures:
        yield "cures", "nothing to try: no workaround fits, and no --try was given", ""
        return
    yield "cures", " · ".join(map(cure_in_words, cause.cures)), ""
    if cause.cure is None:
        yield "", "nothing of this helped", ""


def no_failure(cause: Cause) -> str:
    count = len(cause.reproducing.tries)
    times = plural(count, "try", "tries")
    if not count or not cause.reproducing.worked:
        why = cause.reproducing.tries[0].title if count else ""
        return f"not run: {why}" if why else "it could not be run"
    if cause.run:
        return (
            f"it did not fail in {times} with serialized kernels: probably a race, or something"
            " that clears up by itself"
        )
    return f"it did not fail in {times} (serialized kernels)"


def described(operation: Operation) -> str:
    tensors = operation.tensors
    more = f" and {len(tensors) - TENSORS} more" if len(tensors) > TENSORS else ""
    return f"{operation.name}  {', '.join(tensors[:TENSORS])}{more}".rstrip()


def cure_in_words(cure: Cure) -> str:
    found = cure.experiment
    name = found.setup.name
    if found.outcome is ProbeOutcome.NOT_RUN:
        why = found.tries[0].title if found.tries else ""
        return f"{name} not tried{f' ({why})' if why else ''}"
    return f"{name} {found.worked} of {len(found.tries)}"


def command_with(cause: Cause, cure: Cure) -> str:
    """Return what to type to go on with a cure; "" if a run has no option for it."""
    setup = cure.experiment.setup
    if setup.python or setup.on_cpu:
        return ""
    words = ["rocsteady", "run"]
    if cause.run:
        words += ["--resume", cause.run]
    if cure.remedy:
        words += ["--with", cure.remedy]
    variables = [f"{name}={value}" for name, value in setup.strategy.variables.items() if value]
    before = "" if cure.remedy else f"{' '.join(variables)} "
    return before + shown_command([*words, *(() if cause.run else ("--", *cause.command))])


def _verb(found: Experiment, number: int) -> str:
    verb = VERBS[found.outcome]
    first, space, rest = verb.partition(" ")
    several = {"crashes": "crash"}.get(first, first.removesuffix("s"))
    return verb if number == 1 else f"{several}{space}{rest}"


def _nobody(cause: Cause) -> str:
    last = next(each for each in cause.reproducing.tries if each.outcome is not ProbeOutcome.OK)
    if last.how:
        return f"none to blame: {last.how}"
    what = f": {last.title}" if last.title else ""
    return f"none: it did not fail in an operation of torch{what}"


def _alone(cause: Cause) -> str:
    made = cause.reproduction
    if made is None:
        return f"no reproduction: {cause.not_reproduced}"
    tries = len(made.alone.tries)
    lines = plural(len(made.text.splitlines()), "line")
    beside = ", with its own inputs in a file beside it" if made.values else ""
    verb = VERBS[made.alone.outcome]
    return (
        f"{verb} {made.alone.failed} of {tries} ({lines}{beside}); on the CPU in float64 it works"
    )


def _compared(numbers: ComparedNumbers) -> str:
    calls = sum(numbers.compared.values())
    text = f"{calls:,} calls of {plural(len(numbers.compared), 'operator')} with float64"
    names = sorted(numbers.not_compared)
    if names:
        more = f" and {len(names) - UNCOMPARED} more" if len(names) > UNCOMPARED else ""
        listed = ", ".join(f"{it} ({numbers.not_compared[it]})" for it in names[:UNCOMPARED])
        text += f"; not compared: {listed}{more}"
    return text
