"""``rocsteady watch``: a run in progress, on a full screen or a line now and then."""

from __future__ import annotations

import os
import sys
import time
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rocsteady.cli.options import duration_option
from rocsteady.cli.project import OUTPUT, find_run, nothing_run, open_journal, running
from rocsteady.cli.stop import ask_supervisor
from rocsteady.errors import RocsteadyError
from rocsteady.exit_codes import INTERRUPTED, PERSON_NEEDED
from rocsteady.model import RunOutcome
from rocsteady.run.telling.run_watcher import RunWatcher, WatchView, line_of_text
from rocsteady.screens.screen import present, show, show_json, without_secrets
from rocsteady.screens.watch import condition, is_moving
from rocsteady.store.journal import Journal
from rocsteady.store.values import Run
from rocsteady.system.background import ITSELF, start_detached
from rocsteady.system.terminal_handover import can_fill_screen
from rocsteady.wording import ahead

if TYPE_CHECKING:
    from rocsteady.doctor.knowledge.values import Step

DONE, NOT_DONE = 0, PERSON_NEEDED
STUCK, NOT_EXAMINED = 1, 3
FIND_IT = 0  # --pid without a number
POLL_EVERY = 1.0  # seconds, for the end of the run


@click.command("watch")
@click.argument("name", metavar="[RUN]", required=False)
@click.option("--plain", is_flag=True, help="Print lines even on a terminal.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@duration_option("--interval", default="1m", help="Time between lines when not on a full screen.")
@click.option(
    "--pid",
    type=click.IntRange(min=0),
    is_flag=False,
    flag_value=FIND_IT,
    metavar="[PID]",
    help="Inspect a process that was started without rocsteady: is it stuck, and where? Without a"
    " number, the one that trains, or a list to choose from.",
)
@click.pass_context
def command(  # noqa: PLR0913 - one argument an option
    ctx: click.Context,
    *,
    name: str | None,
    plain: bool,
    as_json: bool,
    interval: timedelta,
    pid: int | None,
) -> None:
    """View RUN while it trains: progress, time left, curves, events and the end of its log.

    Without RUN: the run in progress, or the last one; if several are in progress, choose one.
    Leaving does not stop the run. Keys: s stacks, p pause or continue, R retry, x stop, r report,
    l other runs, ? help, q quit.

    Without a terminal, prints a line every minute until the run ends.

    With --pid, inspects any Python process for a few seconds and changes nothing.

    Exit code: 0 if the run is done or still running, 76 if it ended before the job was done, 2 for
    incorrect usage, 130 on ^C. With --pid: 0 if it works or waits, 1 if it is stuck, 3 if it could
    not be inspected or chosen.
    """
    if pid is not None:
        if name is not None:
            raise click.UsageError("give a RUN or --pid, not both")
        ctx.exit(_inspect(pid or None, as_json=as_json))
    if sys.platform == "win32":
        ctx.fail(
            "a run needs Linux or WSL2. To look into a process here: rocsteady watch --pid PID"
        )
    with open_journal(name, running) as journal:
        if journal is None:
            raise nothing_run(name)
        alive = (line.run.name for line in journal.runs() if line.alive)
        chosen = find_run(journal, name or next(alive, None))
        if not (plain or as_json) and can_fill_screen():
            ctx.exit(watch_screen(journal, chosen.run.name, ask=name is None))
        watcher = RunWatcher(journal, chosen.run.name, os.environ)
        try:
            ctx.exit(_print_lines(watcher, interval.total_seconds(), as_json=as_json))
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)


def watch_screen(journal: Journal, name: str, *, ask: bool = False) -> int:
    """Show a run until the user leaves; return the exit code. ``ask``: which, if several run."""
    from rocsteady.screens.watch_app import Controls, WatchApp  # noqa: PLC0415 - 250 ms: Textual

    def restart(run: Run) -> None:
        if not journal.orders(run.name).chosen:
            raise RocsteadyError(f"not restarted: see first what it runs: run --resume {run.name}")
        words = ("run", "--detach", "--yes", "--resume", run.name)
        output = journal.place.folder / OUTPUT
        start_detached([*ITSELF, *words], os.environ, Path.cwd(), output)

    stop = partial(ask_supervisor, journal=journal)
    app = WatchApp(journal, name, Controls(stop=stop, restart=restart), ask=ask)
    code = app.run()
    return app.return_code or 0 if code is None else code


def _inspect(pid: int | None, *, as_json: bool) -> int:
    from rocsteady.doctor.knowledge.failures import load_failures  # noqa: PLC0415 - only for --pid
    from rocsteady.doctor.knowledge.waits import load_waits  # noqa: PLC0415 - the same
    from rocsteady.failures.hangs import HangRules  # noqa: PLC0415
    from rocsteady.failures.stacks import from_snapshots  # noqa: PLC0415
    from rocsteady.hangs.inspection import ProcessState, candidates, inspect  # noqa: PLC0415
    from rocsteady.screens.inspection import render_candidates, render_inspection  # noqa: PLC0415

    if pid is None:
        listed = without_secrets(candidates())
        if len(listed.processes) != 1:
            present(listed, render_candidates, as_json=as_json)
            return NOT_EXAMINED
        pid = listed.processes[0].pid
    waits = load_waits()
    seen = inspect(pid, waits)
    found = without_secrets(seen.inspection)
    steps: tuple[Step, ...] = ()
    if found.state is ProcessState.STUCK:
        known = load_failures()
        hang = HangRules(known.signatures, waits).name(
            from_snapshots(seen.snapshots, ()), seen.culprit
        )
        if hang is not None:
            fix = known.kinds[hang.kind].fix or known.kinds[hang.kind].advice
            steps = (fix, *fix.then) if fix else ()
    present(found, partial(render_inspection, advice=steps), as_json=as_json)
    return {ProcessState.STUCK: STUCK, ProcessState.UNSEEN: NOT_EXAMINED}.get(found.state, DONE)


def _print_lines(watcher: RunWatcher, interval: float, *, as_json: bool) -> int:
    while True:
        view = watcher.view(fresh=True)
        if as_json:
            show_json(_as_json(view), indent=0)
        else:
            show(f"{time.strftime('%H:%M:%S')} {_text(view)}\n")
        until = time.monotonic() + interval
        while not watcher.has_ended and time.monotonic() < until:
            time.sleep(min(POLL_EVERY, interval))
            watcher.view()
        if watcher.has_ended and watcher.view().line == view.line:
            return DONE if view.line.run.outcome is RunOutcome.DONE else NOT_DONE
        if sys.stdout.closed:
            return DONE


def _text(view: WatchView) -> str:
    story = view.story
    forecast = None if view.line.stalled else story.forecast
    finish = ahead(forecast, story.deadline, now=view.now) if forecast else ""
    return line_of_text(view, condition(view).value, finish, moving=is_moving(view))


def _as_json(view: WatchView) -> dict[str, object]:
    line, story = view.line, view.story
    return {
        "version": 1,
        "at": view.now,
        "run": line.run.name,
        "state": condition(view).value,
        "outcome": line.run.outcome.value,
        "step": line.step,
        "total": line.total,
        "rate": line.rate if is_moving(view) else None,
        "attempts": line.attempts,
        "incidents": line.incidents,
        "blame": story.incidents[-1].blame if story.incidents else None,
        "last_progress": line.last_progress,
        "deadline": story.deadline,
        "finishes": story.forecast.at if story.forecast else None,
        "quiet": view.quiet,
        "saved_at": view.saved.at if view.saved else None,
        "saved_step": view.saved.step if view.saved else None,
    }
