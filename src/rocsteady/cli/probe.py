"""``rocsteady probe``: what works here when really tried."""

from __future__ import annotations

import difflib
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click
import msgspec
import platformdirs

from rocsteady.cli.redrawn import Redrawn, bar, duration
from rocsteady.cli.roots import open_root, python_option
from rocsteady.cli.screen import layout, show
from rocsteady.errors import ExaminationError, NotRecordedError
from rocsteady.journal.identity import is_alive, machine_fingerprint
from rocsteady.journal.journal import Journal
from rocsteady.journal.memory import Memory, memory_to_read
from rocsteady.journal.place import find_place
from rocsteady.knowledge.reader import load_knowledge
from rocsteady.machine.displays import displays
from rocsteady.machine.machine import Machine, examine
from rocsteady.machine.root import Root
from rocsteady.machine.software import software_of
from rocsteady.probes.catalog import FRESH_START, PROBES
from rocsteady.probes.comparing import ROUNDS, Setting, compare, read_setting
from rocsteady.probes.probe import LEVELS
from rocsteady.probes.runner import Runner
from rocsteady.probes.suite import (
    LEVEL_NAMES,
    SOAK,
    Planned,
    Standing,
    Suite,
    let_go,
    line_of,
    newest,
    plan,
    recover,
    total,
    unknown_names,
    without_risks,
)
from rocsteady.report.page import Page, counted
from rocsteady.report.probe import (
    Comparison,
    ProbeLine,
    ProbeSummary,
    conclusion,
    render_comparison,
    render_probe,
    render_stories,
    title_column,
)
from rocsteady.supervisor.injection import OWNER, claim
from rocsteady.vocabulary import Observation, ProbeOutcome

NOTHING_WRONG, SOMETHING_WRONG, INTERRUPTED = 0, 1, 130
SCRIPT = "rocsteady.probe.script"  # what came after --
STEPS = 50
PREFIX = "rocsteady-probe-"
LONGEST = 80  # bytes of a folder in which a socket can still be made
PLACES = ("bin/python", "bin/python3", "Scripts/python.exe", "python.exe")


class TrySetting(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A variable to be tried."""

    name = "NAME=VALUE"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Setting:
        """Read it, or say what is wrong with it."""
        if isinstance(value, Setting):
            return value
        try:
            return read_setting(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class ProbeCommand(click.Command):
    """What comes after -- is a command of the user's own, and not for us to read."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Set it apart."""
        own = args.index("--") if "--" in args else len(args)
        ctx.meta[SCRIPT] = tuple(args[own + 1 :])
        return super().parse_args(ctx, args[:own])


@click.command("probe", cls=ProbeCommand, options_metavar="[OPTIONS]")
@click.argument("names", nargs=-1, metavar="[NAME]... [-- COMMAND]")
@click.option(
    "--level",
    type=click.Choice(LEVEL_NAMES),
    default="1",
    show_default=True,
    help="1: seconds; 2: about two minutes; 3: about fifteen; soak: until you stop it.",
)
@python_option
@click.option(
    "--try",
    "tried",
    type=TrySetting(),
    multiple=True,
    help="Run the probes without and with this variable, in turn, and say whether it makes a"
    " difference. -NAME unsets one. May be given more than once.",
)
@click.option(
    "--rounds",
    type=click.IntRange(1),
    help="With --try: how often each has its turn. With --level soak: how often all of it.",
)
@click.option(
    "--steps", type=click.IntRange(1), help="With a command of your own: how many. Default: 50."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
@click.option("--yes", is_flag=True, help="Do not ask before what may reset a GPU.")
@click.option("--again", is_flag=True, help="Try also what took this machine down.")
@click.option("--explain", is_flag=True, help="Tell all that was seen here so far, and stop.")
@click.pass_context
def command(  # noqa: PLR0913 - one argument an option
    ctx: click.Context,
    *,
    names: tuple[str, ...],
    level: str,
    python: str | None,
    tried: tuple[Setting, ...],
    rounds: int | None,
    steps: int | None,
    as_json: bool,
    yes: bool,
    again: bool,
    explain: bool,
) -> None:
    """Try what training needs, each in a process that may hang or die, and say what works.

    NAME is a probe, as attention-backward, or one variant of it, as attention-backward:flash.
    Without one, all of the level are run. What will be done is said first. With a COMMAND of your
    own, as in rocsteady probe -- python train.py, some steps of that are made instead, over this
    folder and never in it.

    Exit code: 0 nothing went wrong, 1 something did, 2 wrong usage, 3 could not examine, 130 on ^C.
    """
    script: tuple[str, ...] = ctx.meta[SCRIPT]
    _check_usage(names, level, tried, rounds)
    _check_script(script, steps, other=bool(names or tried or rounds or again or explain or python))
    if script:
        ctx.exit(_script(script, steps or STEPS, as_json=as_json, yes=yes))
    root = open_root(None, python)
    machine, _ = examine(root, load_knowledge().variables)
    software = software_of(machine)
    if explain:
        _explain(names, software, as_json=as_json)
        return
    interpreter = _interpreter(root, machine)
    place = find_place(platformdirs.user_state_path("rocsteady", appauthor=False) / "probes")
    memory, journal = Memory(place), Journal(place)
    with _ended_properly(memory, journal), _scratch(place.folder, journal) as folder:
        _tell_takedowns(recover(journal, memory, software))
        memory.flush()
        here = journal.here.machine
        standing = Standing(
            machine=machine,
            screens=displays(root),
            took_down=bool(memory.takedowns(here)),
            observations=memory.observations(here),
        )
        planned = _asked(plan(PROBES, level, names, standing, again=again), yes=yes)
        runner = Runner(
            interpreter, folder=folder, journal=journal, environment=os.environ, software=software
        )
        suite = Suite(runner, memory, here, place.folder / "evidence")
        session = _Session(suite, planned, level=level, software=software, as_json=as_json)
        session.announce(tried, rounds)
        try:
            if tried:
                session.compare(tried, rounds or ROUNDS[_depth(level)])
            elif level == SOAK:
                session.soak(rounds)
            else:
                session.once()
        except KeyboardInterrupt:
            session.interrupted = True
        finally:
            runner.close()
            let_go(journal)
        code = session.conclude()
    ctx.exit(code)


class _Session:
    """One use of the command: runs what is planned, and shows what comes of it as it comes."""

    def __init__(
        self, suite: Suite, planned: Sequence[Planned], *, level: str, software: str, as_json: bool
    ) -> None:
        self._suite, self._planned, self._level = suite, planned, level
        self._software, self._as_json = software, as_json
        self._width, self._colour = layout(sys.stdout)
        self._column = title_column(each.probe.title for each in planned)
        self._foot = Redrawn(sys.stderr if as_json else sys.stdout, self._width)
        self._seen: dict[str, list[ProbeLine]] = {}
        self._comparisons: list[Comparison] = []
        self._tables = 0  # rounds whose lines were all shown
        self._left = self._whole = 0.0  # seconds, about
        self.interrupted = False

    def announce(self, tried: Sequence[Setting], rounds: int | None) -> None:
        """Say what will be done, before it is."""
        live = [each for each in self._planned if not each.why_not]
        seconds = sum(each.about for each in live)
        seconds += 0.0 if all(each.probe.fresh for each in live) else FRESH_START
        turns = (rounds or ROUNDS[_depth(self._level)]) * (len(tried) + 1)
        if tried:
            seconds = (
                sum(each.about + (0 if each.probe.fresh else FRESH_START) for each in live) * turns
            )
        about = f"about {duration(seconds)}"
        if self._level == SOAK and not tried:
            about += f" a round, {rounds} rounds" if rounds else " a round, until you stop it"
        self._left = self._whole = seconds
        what = counted(len(live), "probe")
        each = f", {turns} processes each" if tried else ""
        risky = [planned.probe.title for planned in live if planned.probe.risky]
        known = (
            f"Known to have reset a GPU somewhere: {', '.join(risky)}."
            if risky
            else "None of them is known to reset a GPU."
        )
        page = Page(self._width, colour=False)
        page.paragraph(f"Level {self._level}: {what}{each}, {about}. {known}")
        click.echo(str(page).rstrip(), err=self._as_json)

    def once(self) -> None:
        """Run all of it."""
        for number, planned in enumerate(self._planned):
            self._show(planned, self._run(planned, number))

    def soak(self, rounds: int | None) -> None:
        """Run all of it again and again."""
        done = 0
        while rounds is None or done < rounds:
            self._left = self._whole
            self.once()
            done += 1
            self._tables = done
            if not any(not planned.why_not for planned in self._planned):
                return

    def compare(self, tried: Sequence[Setting], rounds: int) -> None:
        """Run each without and with settings."""
        for number, planned in enumerate(self._planned):
            if planned.why_not:
                self._show(planned, self._run(planned, number))
                continue
            self._compare(planned, number, tried, rounds)

    def conclude(self) -> int:
        """Say what it comes to, and return the exit code."""
        self._foot.clear()
        lines = [
            msgspec.structs.replace(
                line_of(None, total([line.observation for line in group])),
                what=group[-1].what,
                question=group[-1].question,
            )
            for group in self._seen.values()
        ]
        said = conclusion(lines, self._comparisons)
        outcomes = [line.observation for line in lines]
        compared = [arm.wrong for each in self._comparisons for arm in each.arms]
        summary = ProbeSummary(
            level=self._level,
            software=self._software,
            ok=sum(each.outcome is ProbeOutcome.OK for each in outcomes),
            wrong=sum(each.bad for each in outcomes) + sum(compared),
            not_run=sum(each.outcome is ProbeOutcome.NOT_RUN for each in outcomes),
            interrupted=self.interrupted,
            conclusion=tuple(said),
        )
        if self._as_json:
            _print_json({"summary": summary})
        else:
            self._close(lines, said, wrong=bool(summary.wrong))
        if self.interrupted:
            return INTERRUPTED
        return SOMETHING_WRONG if summary.wrong else NOTHING_WRONG

    def _close(self, lines: Sequence[ProbeLine], said: Sequence[str], *, wrong: bool) -> None:
        page = Page(self._width, colour=self._colour)
        if any(len(group) > 1 for group in self._seen.values()):
            page.line(f"In {counted(max(map(len, self._seen.values())), 'round')}:")
            show(str(page) + "".join(map(self._rendered, lines)))
            page = Page(self._width, colour=self._colour)
        if self.interrupted:
            page.paragraph("Interrupted; what was being tried was ended.")
        for sentence in said:
            page.paragraph(sentence)
        if wrong:
            page.paragraph("What was seen, and where it is kept: rocsteady probe --explain")
        show(str(page))

    def _run(self, planned: Planned, number: int) -> Observation:
        progress = self._progress(planned, number)
        progress(0)
        observation = self._suite.run(planned, progress=progress)
        self._left -= planned.about
        return observation

    def _progress(self, planned: Planned, number: int, more: str = "") -> Callable[[int], None]:
        began = time.monotonic()

        def draw(tries: int) -> None:
            if planned.why_not:
                return
            left = max(self._left - min(time.monotonic() - began, planned.about), 0.0)
            done = 1 - left / self._whole if self._whole else 1.0
            of = f" of {planned.tries:,}" if planned.tries else ""
            count = f"{tries:,}{of} {planned.probe.what}" if tries else "starting"
            self._foot.draw(
                f"{bar(done)} {number + 1} of {len(self._planned)}: {planned.probe.title}{more},"
                f" {count}, about {duration(left)} left"
            )

        return draw

    def _compare(
        self, planned: Planned, number: int, tried: Sequence[Setting], rounds: int
    ) -> None:
        probe = planned.probe

        def turn(setting: Setting | None) -> Observation:
            more = f" with {setting.spelt}" if setting else " without"
            observation = self._suite.run(
                planned,
                {setting.name: setting.value} if setting else None,
                fresh=True,
                progress=self._progress(planned, number, more),
            )
            self._left -= planned.about
            if self._as_json:
                _print_json({"observation": observation})
            elif observation.bad:
                self._foot.clear()
                show(self._rendered(line_of(probe, observation)))
            return observation

        comparison = compare((probe.name, probe.variant), tried, rounds, turn, os.environ)
        self._comparisons.append(comparison)
        self._foot.clear()
        if self._as_json:
            _print_json({"comparison": comparison})
        else:
            show(render_comparison(comparison, width=self._width, colour=self._colour))

    def _show(self, planned: Planned, observation: Observation) -> None:
        line = line_of(planned.probe, observation)
        self._seen.setdefault(line.title, []).append(line)
        self._foot.clear()
        if self._as_json:
            _print_json({"observation": observation})
        elif not self._tables or observation.bad:
            show(self._rendered(line))

    def _rendered(self, line: ProbeLine) -> str:
        return render_probe(line, column=self._column, width=self._width, colour=self._colour)


def _check_usage(
    names: Sequence[str], level: str, tried: Sequence[Setting], rounds: int | None
) -> None:
    for name in unknown_names(PROBES, names):
        known = sorted({probe.name for probe in PROBES})
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"Did you mean {near[0]}?" if near else f"There are: {', '.join(known)}."
        raise click.BadParameter(f"there is no probe {name!r}. {hint}", param_hint="NAME")
    if tried and not names:
        raise click.UsageError("--try needs the names of the probes that are to be run.")
    if rounds and not (tried or level == SOAK):
        raise click.UsageError("--rounds goes with --try, or with --level soak.")


def _check_script(script: Sequence[str], steps: int | None, *, other: bool) -> None:
    if script and other:
        raise click.UsageError("with a command of your own, only --steps, --yes and --json go.")
    if steps and not script:
        raise click.UsageError(
            "--steps goes with a command: rocsteady probe --steps 20 -- python train.py"
        )


def _script(script: tuple[str, ...], steps: int, *, as_json: bool, yes: bool) -> int:
    from rocsteady.cli.probe_script import probe_script  # noqa: PLC0415 - all of the supervisor

    result = probe_script(script, steps, yes=yes)
    seen = result.observation
    line = ProbeLine(observation=seen, what="steps")
    if as_json:
        _print_json({"observation": seen, "changed": result.changed})
    else:
        width, colour = layout(sys.stdout)
        page = Page(width, colour=colour)
        if result.changed:
            page.paragraph(f"Not as before in your folder: {', '.join(result.changed[:5])}.")
        elif result.changed is not None:
            page.paragraph("Your outputs were not touched.")
        if seen.evidence:
            page.paragraph("Log and evidence were kept:")
            page.line(f"  {seen.evidence}")
        column = title_column([line.title])
        show(render_probe(line, column=column, width=width, colour=colour) + str(page))
    if result.stopped:
        return INTERRUPTED
    return NOTHING_WRONG if seen.outcome is ProbeOutcome.OK else SOMETHING_WRONG


def _explain(names: Sequence[str], software: str, *, as_json: bool) -> None:
    memory = memory_to_read()
    seen = newest(memory.observations(machine_fingerprint())).values()
    probes = {probe.title: probe for probe in PROBES}
    lines = [
        line_of(probes.get(f"{each.probe} {each.variant}".rstrip()), each)
        for each in seen
        if not names or each.probe in names or f"{each.probe}:{each.variant}" in names
    ]
    if as_json:
        for line in lines:
            _print_json({"observation": line.observation})
        return
    lines.sort(key=lambda line: not line.observation.bad)
    width, colour = layout(sys.stdout)
    show(render_stories(lines, software, width=width, colour=colour))


def _tell_takedowns(found: Sequence[Observation]) -> None:
    for seen in found:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(seen.at))
        title = f"{seen.probe} {seen.variant}".rstrip()
        click.echo(f"rocsteady: on {when} the machine went down during {title}.", err=True)


def _asked(planned: tuple[Planned, ...], *, yes: bool) -> tuple[Planned, ...]:
    """Ask about what may reset a GPU, where that would hurt."""
    risks = [each for each in planned if each.risk]
    if not risks or yes:
        return planned
    click.echo("rocsteady: these have reset a GPU on some machines:", err=True)
    for each in risks:
        click.echo(f"  {each.probe.title}: {each.risk}", err=True)
    if sys.stdin.isatty() and click.confirm("Run them too?", err=True):
        return planned
    return without_risks(planned)


def _interpreter(root: Root, machine: Machine) -> str:
    """Return the Python that trains; without torch in it there is nothing to try."""
    found = machine.python
    if found is None:
        raise ExaminationError("no Python that trains was found: name it with --python PATH")
    if machine.torch is None:
        why = found.why_not or "there is no torch in it"
        raise ExaminationError(f"{found.prefix}: {why}. Name another with --python PATH")
    paths = (Path(found.prefix) / name for name in PLACES)
    path = root.python or next((str(path) for path in paths if path.is_file()), None)
    if path is None:
        raise ExaminationError(f"{found.prefix} has no interpreter: name it with --python PATH")
    return path


@contextmanager
def _ended_properly(memory: Memory, journal: Journal) -> Iterator[None]:
    """End also on SIGTERM as on ^C, and write what is left."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except NotRecordedError as error:
        raise ExaminationError(f"{error}. Nothing more was tried") from None
    finally:
        signal.signal(signal.SIGTERM, before)
        journal.close()
        memory.close()


@contextmanager
def _scratch(kept: Path, journal: Journal) -> Iterator[Path]:
    """Give a folder for what probes write; those of processes that were killed are removed."""
    short = len(os.fsencode(kept)) <= LONGEST - len(PREFIX)
    parent = kept if short else Path(tempfile.gettempdir())
    for left in parent.glob(f"{PREFIX}*"):
        owner = left / OWNER
        if owner.is_file() and is_alive(owner.read_text(encoding="utf-8")) is False:
            shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
    claim(folder, journal.here.process)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _depth(level: str) -> int:
    return len(LEVELS) - 1 if level == SOAK else int(level) - 1


def _print_json(told: dict[str, object]) -> None:
    show(msgspec.json.encode({"version": 1, **told}).decode() + "\n")
