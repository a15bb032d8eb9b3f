"""``rocsteady probe``: what works here when really tried."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from rocsteady.attempts.injection import OWNER, claim, read_owner
from rocsteady.cli.machine_options import open_root, python_option
from rocsteady.errors import ExaminationError, NotRecordedError
from rocsteady.exit_codes import INTERRUPTED
from rocsteady.journal.identity import is_alive, machine_fingerprint
from rocsteady.journal.journal import Journal
from rocsteady.journal.location import find_place
from rocsteady.journal.machine_history import Memory, memory_to_read
from rocsteady.knowledge.reader import load_knowledge
from rocsteady.machine.displays import displays
from rocsteady.machine.machine import Machine, examine
from rocsteady.machine.root import Root
from rocsteady.machine.software import software_of
from rocsteady.model import Observation, ProbeOutcome
from rocsteady.probes.catalog import PROBES
from rocsteady.probes.comparison import ROUNDS, VariableSetting, read_setting
from rocsteady.probes.runner import ProbeRunner
from rocsteady.probes.suite import (
    LEVEL_NAMES,
    SOAK,
    KnownBefore,
    Planned,
    Suite,
    let_go,
    line_of,
    newest,
    plan,
    recover,
    unknown_names,
    without_risks,
)
from rocsteady.report.probe import (
    ProbeLine,
    render_probe,
    render_stories,
    title_column,
)
from rocsteady.report.text_page import Page
from rocsteady.suggestions import no_such
from rocsteady.terminal.probe_session import (
    NOTHING_WRONG,
    SOMETHING_WRONG,
    ProbeSession,
    depth,
    print_json,
)
from rocsteady.terminal.screen import layout, show, tell
from rocsteady.user_folders import state_folder

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
    ) -> VariableSetting:
        """Read it, or say what is wrong with it."""
        if isinstance(value, VariableSetting):
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
    help="1: seconds; 2: about 2 min; 3: about 15 min; soak: until stopped.",
)
@python_option
@click.option(
    "--try",
    "tried",
    type=TrySetting(),
    multiple=True,
    help="Run the probes alternately without and with this variable, and report whether it makes a"
    " difference. -NAME unsets a variable. Can be repeated.",
)
@click.option(
    "--rounds",
    type=click.IntRange(1),
    help="With --try: rounds per variant. With --level soak: rounds in total.",
)
@click.option(
    "--steps", type=click.IntRange(1), help="With a command: number of steps. Default: 50."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@click.option("--yes", is_flag=True, help="Skip confirmation of probes that may reset a GPU.")
@click.option("--again", is_flag=True, help="Also run probes that have crashed this machine.")
@click.option("--explain", is_flag=True, help="Show all results on this machine so far and exit.")
@click.pass_context
def command(  # noqa: PLR0913 - one argument an option
    ctx: click.Context,
    *,
    names: tuple[str, ...],
    level: str,
    python: str | None,
    tried: tuple[VariableSetting, ...],
    rounds: int | None,
    steps: int | None,
    as_json: bool,
    yes: bool,
    again: bool,
    explain: bool,
) -> None:
    """Find out by experiment what works on this machine. Each probe runs in its own process.

    NAME is a probe such as attention-backward, or a variant such as attention-backward:flash.
    Without NAME, describes the level and runs all its probes. With a command, as in rocsteady probe
    -- python train.py, runs some steps of the script instead and writes nothing to this folder.

    Exit code: 0 no failures, 1 some failed, 2 incorrect usage, 3 could not examine, 130 on ^C.
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
    place = find_place(state_folder() / "probes")
    memory, journal = Memory(place), Journal(place)
    with _ended_properly(memory, journal), _scratch(place.folder, journal) as folder:
        _tell_takedowns(recover(journal, memory, software))
        memory.flush()
        here = journal.here.machine
        down, seen = bool(memory.takedowns(here)), memory.observations(here)
        before = KnownBefore(
            machine=machine, screens=displays(root), took_down=down, observations=seen
        )
        planned = _asked(plan(PROBES, level, names, before, again=again), yes=yes)
        runner = ProbeRunner(
            interpreter, folder=folder, journal=journal, environment=os.environ, software=software
        )
        suite = Suite(runner, memory, here, place.folder / "evidence")
        session = ProbeSession(suite, planned, level=level, software=software, as_json=as_json)
        try:
            _run_probes(session, level, tried, rounds)
        except KeyboardInterrupt:
            session.interrupted = True
        finally:
            runner.close()
            let_go(journal)
        code = session.conclude()
    ctx.exit(code)


def _run_probes(
    session: ProbeSession, level: str, tried: tuple[VariableSetting, ...], rounds: int | None
) -> None:
    session.announce(tried, rounds)
    if tried:
        session.compare(tried, rounds or ROUNDS[depth(level)])
    elif level == SOAK:
        session.soak(rounds)
    else:
        session.once()


def _check_usage(
    names: Sequence[str], level: str, tried: Sequence[VariableSetting], rounds: int | None
) -> None:
    for name in unknown_names(PROBES, names):
        known = sorted({probe.name for probe in PROBES})
        listed = f"Probes: {', '.join(known)}."
        raise click.BadParameter(no_such("probe", name, known, listed), param_hint="NAME")
    if tried and not names:
        raise click.UsageError("--try needs the names of the probes to run.")
    if rounds and not (tried or level == SOAK):
        raise click.UsageError("--rounds needs --try or --level soak.")


def _check_script(script: Sequence[str], steps: int | None, *, other: bool) -> None:
    if script and other:
        raise click.UsageError("with a command, only --steps, --yes and --json can be used.")
    if steps and not script:
        raise click.UsageError(
            "--steps needs a command: rocsteady probe --steps 20 -- python train.py"
        )


def _script(script: tuple[str, ...], steps: int, *, as_json: bool, yes: bool) -> int:
    from rocsteady.terminal.command_check import check_command  # noqa: PLC0415 - as below
    from rocsteady.terminal.job_questions import ask_about_paths  # noqa: PLC0415 - as below
    from rocsteady.workflows.script_probe import NAME, probe_script  # noqa: PLC0415 - all of the supervisor

    folder = Path.cwd()
    check_command(script, folder)
    ask_about_paths(script, folder, NAME, yes=yes)
    result = probe_script(script, steps, folder)
    seen = result.observation
    line = ProbeLine(observation=seen, what="steps")
    if as_json:
        print_json({"observation": seen, "changed": result.changed})
    else:
        width, colour = layout(sys.stdout)
        page = Page(width, colour=colour)
        if result.changed:
            page.paragraph(f"Changed in this folder: {', '.join(result.changed[:5])}.")
        elif result.changed is not None:
            page.paragraph("Your own files were not touched.")
        if seen.evidence:
            page.paragraph("Logs and evidence:")
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
            print_json({"observation": line.observation})
        return
    lines.sort(key=lambda line: not line.observation.bad)
    width, colour = layout(sys.stdout)
    show(render_stories(lines, software, width=width, colour=colour))


def _tell_takedowns(found: Sequence[Observation]) -> None:
    for seen in found:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(seen.at))
        title = f"{seen.probe} {seen.variant}".rstrip()
        tell(f"rocsteady: the machine went down during {title} on {when}.")


def _asked(planned: tuple[Planned, ...], *, yes: bool) -> tuple[Planned, ...]:
    """Ask about what may reset a GPU, where that would hurt."""
    risks = [each for each in planned if each.risk]
    if not risks or yes:
        return planned
    tell("rocsteady: these probes have reset the GPU on some machines:")
    for each in risks:
        tell(f"  {each.probe.title}: {each.risk}")
    if sys.stdin.isatty() and click.confirm("Run them anyway?", err=True):
        return planned
    return without_risks(planned)


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
        raise ExaminationError(f"{error}. No more probes were run") from None
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
        if (left / OWNER).is_file() and is_alive(read_owner(left)) is False:
            shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
    claim(folder, journal.here.process)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
