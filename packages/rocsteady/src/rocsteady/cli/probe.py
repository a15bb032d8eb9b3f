"""``rocsteady probe``: what works here when really tried."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import click

from rocsteady.cli.find_cause import CauseOptions, find_cause
from rocsteady.cli.options import duration_option, interpreter_in, open_root, python_option
from rocsteady.cli.project import find_journal_place, open_journals
from rocsteady.doctor.knowledge.reader import load_knowledge
from rocsteady.doctor.machine.machine import Machine, examine, software_of
from rocsteady.errors import ExaminationError, NotRecordedError
from rocsteady.exit_codes import INTERRUPTED
from rocsteady.model import Observation, ProbeOutcome
from rocsteady.probe.catalog import PROBES
from rocsteady.probe.guard import Guard
from rocsteady.probe.runner import ProbeRunner
from rocsteady.probe.suite import (
    LEVEL_NAMES,
    Planned,
    line_of,
    newest,
    observe,
    plan,
    unknown_names,
)
from rocsteady.probe.values import ProbeLine
from rocsteady.run.attempt.injection import OWNER, claim, read_owner
from rocsteady.screens.job_questions import EXAMPLE, as_typed
from rocsteady.screens.probe import (
    ProbeSummary,
    conclusion,
    render_probe,
    render_stories,
    title_column,
)
from rocsteady.screens.screen import ProgressLine, page_here, progress, show, show_json, tell
from rocsteady.store.account_records import UsedFile, keep, kept
from rocsteady.store.identity import fingerprint, is_alive, machine_fingerprint
from rocsteady.store.journal import Journal
from rocsteady.store.machine_history import Memory, memory_to_read
from rocsteady.store.user_folders import state_folder
from rocsteady.suggestions import no_such
from rocsteady.system.real_path import real_path
from rocsteady.system.root import Root
from rocsteady.wording import plural, rough_duration

COMMAND = "rocsteady.probe.command"  # by which the context knows what follows ``--``
PREFIX = "rocsteady-probe-"
OF_FOLDER = "./.venv"  # as the machine says of its environment


class ProbeCommand(click.Command):
    """What follows ``--`` is a command; without it, words are names of probes, or a run."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        ctx.meta[COMMAND] = tuple(args[at + 1 :])
        return super().parse_args(ctx, args[:at])


@click.command("probe", cls=ProbeCommand, options_metavar="[OPTIONS]")
@click.argument("names", nargs=-1, metavar="[NAME]... | RUN | -- COMMAND")
@click.option(
    "--level",
    type=click.Choice(LEVEL_NAMES),
    default="1",
    show_default=True,
    help="1: about 25 s; 2: about 100 s; 3: about 10 min.",
)
@python_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@click.option("--yes", is_flag=True, help="Skip all confirmations.")
@click.option("--again", is_flag=True, help="Also run probes that have crashed this machine.")
@click.option("--details", is_flag=True, help="Show all results on this machine so far and exit.")
@click.option(
    "--try",
    "tries",
    multiple=True,
    metavar="NAME=VALUE",
    help="With RUN or COMMAND: also try this variable, or this build of torch (torch==2.9.1), as a"
    " cure. May be repeated.",
)
@click.option(
    "--numbers",
    is_flag=True,
    help="With RUN or COMMAND: repeat each operation in float64 on the CPU, and compare.",
)
@duration_option(
    "--within",
    default="30m",
    help="With RUN or COMMAND: stop after this long, and report what is known.",
)
@duration_option(
    "--hang-after", default="60s", help="With RUN or COMMAND: how long one operation may take."
)
@click.option(
    "--report",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="With RUN or COMMAND: write a draft of a report for upstream.",
)
@click.pass_context
def command(
    ctx: click.Context,
    /,
    names: tuple[str, ...],
    level: str,
    details: bool,  # noqa: FBT001 - by its name, as click calls it
    **chosen: Any,  # noqa: ANN401 - CauseOptions has types
) -> None:
    """Test what works on this machine, or find the operation that fails.

    NAME is a probe such as attention-backward, or a variant such as attention-backward:flash.
    Without NAME, describes the level and runs all its probes. Each runs in its own process.

    RUN is a run that failed, COMMAND a script: finds the operation that hangs, crashes or computes
    wrong numbers, makes a script of it alone, and tries what may cure it. The files of this folder
    are not touched.

    Exit code: 0 no failures, 1 some failed, 2 incorrect usage, 3 could not examine, 130 on ^C.
    """
    options = CauseOptions(command=ctx.meta[COMMAND], run=_run_in(names), **chosen)
    if options.command or options.run:
        ctx.exit(find_cause(options))
    if options.tries or options.numbers or options.report:
        typed = as_typed(after=EXAMPLE)
        raise click.UsageError(f"--try, --numbers and --report need a run or a command: {typed}")
    for name in unknown_names(PROBES, names):
        known = sorted({probe.name for probe in PROBES})
        listed = f"Probes: {', '.join(known)}."
        raise click.BadParameter(no_such("probe", name, known, listed), param_hint="NAME")
    root = open_root(None, options.python)
    machine, _ = examine(root, load_knowledge().variables)
    software = software_of(machine)
    if details:
        _show_details(names, software, as_json=options.as_json)
        return
    interpreter = _interpreter(root, machine)
    place = find_journal_place(state_folder() / "probes")
    guard = Guard(Journal(place), Memory(place), software)
    with guard, _scratch(place.folder, guard.journal) as folder:
        if machine.python and machine.python.chosen == OF_FOLDER:
            _ask_about(interpreter, yes=options.yes)
        guard.recover(tell)
        seen = guard.observations()
        planned = plan(PROBES, level, names, machine, observations=seen, again=options.again)
        runner = ProbeRunner(interpreter, folder=folder, guard=guard, environment=os.environ)
        run_one = partial(observe, runner=runner, evidence=place.folder / "evidence")
        session = ProbeSession(
            run_one, planned, level=level, software=software, as_json=options.as_json
        )
        try:
            session.announce()
            session.run()
        except KeyboardInterrupt:
            session.interrupted = True
        except NotRecordedError as error:
            raise ExaminationError(f"{error}. No more probes were run") from None
        code = session.conclude()
    ctx.exit(code)


def _run_in(names: Sequence[str]) -> str:
    """Return the run that is named, if the only name is one, and of no probe."""
    if len(names) != 1 or not unknown_names(PROBES, names):
        return ""
    with open_journals() as journals:
        runs = {line.run.name for journal in journals for line in journal.runs()}
    return names[0] if names[0] in runs else ""


def _show_details(names: Sequence[str], software: str, *, as_json: bool) -> None:
    memory = memory_to_read()
    seen = newest(memory.observations(machine_fingerprint())).values()
    probes = {probe.title: probe for probe in PROBES}
    lines = [
        line_of(probes.get(each.title), each)
        for each in seen
        if not names or each.probe in names or f"{each.probe}:{each.variant}" in names
    ]
    if as_json:
        for line in lines:
            print_json({"observation": line.observation})
        return
    lines.sort(key=lambda line: not line.observation.bad)
    show(render_stories(lines, software, page=page_here()))


def _interpreter(root: Root, machine: Machine) -> str:
    """Return the Python that trains; without torch in it there is nothing to try."""
    found = machine.python
    if found is None:
        raise ExaminationError(
            "no Python environment with torch was found. Name one with --python PATH"
        )
    if machine.torch is None:
        why = found.why_not or "it has no torch"
        raise ExaminationError(f"{found.prefix}: {why}. Name another with --python PATH")
    path = root.python or interpreter_in(Path(found.prefix))
    if path is None:
        raise ExaminationError(f"{found.prefix} has no interpreter: name it with --python PATH")
    return str(path)


def _ask_about(interpreter: str, *, yes: bool) -> None:
    """Ask before the interpreter of the current folder is run: it may have come with it."""
    now = UsedFile(sha256=fingerprint(real_path(interpreter)))
    if not yes and kept(UsedFile, Path(interpreter)) != now:
        question = f"{interpreter} lies in this folder, and may have come with it. Run it?"
        if not sys.stdin.isatty() or not click.confirm(question, err=True):
            raise click.UsageError(
                f"nothing was run: {interpreter} lies in this folder, and may have come with it."
                " To allow it: rocsteady probe --yes"
            )
    keep(now, Path(interpreter))


@contextmanager
def _scratch(state: Path, journal: Journal) -> Iterator[Path]:
    """Yield a folder for what probes write, and remove those of killed processes."""
    for left in state.glob(f"{PREFIX}*"):
        if (left / OWNER).is_file() and is_alive(read_owner(left)) is False:
            shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=state))
    claim(folder, journal.here.process)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


NOTHING_WRONG, SOMETHING_WRONG = 0, 1


class ProbeSession:
    def __init__(
        self,
        run_one: Callable[..., Observation],
        planned: Sequence[Planned],
        *,
        level: str,
        software: str,
        as_json: bool,
    ) -> None:
        self._run_one, self._planned, self._level = run_one, planned, level
        self._software, self._as_json = software, as_json
        self._column = title_column(each.probe.title for each in planned)
        self._lines: list[ProbeLine] = []
        live = [each for each in planned if not each.why_not]
        self._total = sum(each.about for each in live)  # seconds
        self._left = self._total
        self.interrupted = False

    def announce(self) -> None:
        live = plural(sum(not each.why_not for each in self._planned), "probe")
        about = f"about {rough_duration(self._total)}"
        page = page_here()
        page.paragraph(
            f"Level {self._level}: {live}, {about}. None of them is known to reset a GPU."
        )
        if self._as_json:
            tell(str(page).rstrip())
        else:
            show(str(page))

    def run(self) -> None:
        for number, planned in enumerate(self._planned):
            observation = self._observe(planned, number)
            self._left -= planned.about
            line = line_of(planned.probe, observation)
            self._lines.append(line)
            if self._as_json:
                print_json({"observation": observation, "one_in": line.one_in})
            else:
                show(render_probe(line, column=self._column, page=page_here()))

    def conclude(self) -> int:
        outcomes = [line.observation for line in self._lines]
        summary = ProbeSummary(
            level=self._level,
            software=self._software,
            ok=sum(each.outcome is ProbeOutcome.OK for each in outcomes),
            wrong=sum(each.bad for each in outcomes),
            not_run=sum(each.outcome is ProbeOutcome.NOT_RUN for each in outcomes),
            interrupted=self.interrupted,
            conclusion=tuple(conclusion(self._lines)),
        )
        if self._as_json:
            print_json({"summary": summary})
        else:
            self._show_summary(summary)
        if self.interrupted:
            return INTERRUPTED
        return SOMETHING_WRONG if summary.wrong else NOTHING_WRONG

    def _show_summary(self, summary: ProbeSummary) -> None:
        page = page_here()
        if self.interrupted:
            page.paragraph("Interrupted; the current probe was stopped.")
        for sentence in summary.conclusion:
            page.paragraph(sentence)
        if summary.wrong:
            page.paragraph("Details: rocsteady probe --details")
        show(str(page))

    def _observe(self, planned: Planned, number: int) -> Observation:
        if planned.why_not:
            return self._run_one(planned)
        tried = 0

        def count(tries: int) -> None:
            nonlocal tried
            tried = tries

        def now(elapsed: float) -> ProgressLine:
            left = max(self._left - min(elapsed, planned.about), 0.0)
            done = 1 - left / self._total if self._total else 1.0
            tries = f"{tried:,} of {planned.tries:,} {planned.probe.what}" if tried else "starting"
            of_all = f"{number + 1} of {len(self._planned)}: {planned.probe.title}"
            return ProgressLine(f"{of_all}, {tries}, about {rough_duration(left)} left", done)

        with progress(now):
            return self._run_one(planned, progress=count)


def print_json(line: dict[str, object]) -> None:
    show_json({"version": 1, **line}, indent=0)
