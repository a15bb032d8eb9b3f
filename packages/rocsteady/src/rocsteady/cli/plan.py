"""``rocsteady plan``: every option for the job, measured, against the deadline and budget."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path

import click
from msgspec.structs import replace

from rocsteady.cli.options import duration_option, open_root, paths_yes_option
from rocsteady.cli.plan_export import write_files
from rocsteady.cli.project import enter, find_job_folder, find_journal_place, write_asked
from rocsteady.doctor.diagnosis import doctors_knowledge
from rocsteady.doctor.machine.machine import Machine, examine
from rocsteady.errors import RequestError
from rocsteady.exit_codes import INTERRUPTED
from rocsteady.plan import saved_plan
from rocsteady.plan.circumstances import Circumstances, Goal, circumstances, goal_of
from rocsteady.plan.exports.targets import TARGETS
from rocsteady.plan.planner import (
    Planner,
    count_trials,
    make_plan,
    recorded_plan,
    remember,
    with_trials,
    worked_planner,
)
from rocsteady.plan.trials import (
    PlanTrials,
    Trials,
    keep_trials,
    kept_trials,
    look_back,
)
from rocsteady.plan.values import Basis, Plan
from rocsteady.probe.folders import changes_in_words
from rocsteady.report.pages import render_template
from rocsteady.run.job.stages import commands_of
from rocsteady.run.job.values import Job
from rocsteady.screens.decision_page import HTML, MARKDOWN, decision_page
from rocsteady.screens.job_questions import ask_about_paths, check_command, job_here
from rocsteady.screens.plan import render_option, render_plan
from rocsteady.screens.screen import ProgressLine, page_here, progress, show, show_json, tell
from rocsteady.store.journal import Journal
from rocsteady.store.location import existing_places
from rocsteady.store.machine_history import Memory
from rocsteady.store.policy import Mode, read_policy
from rocsteady.store.redaction import shown_command

FOUND, NONE_FOUND = 0, 1
STOPPED = "rocsteady: interrupted. No plan was made, and {}."
UNTRIED = "--no-trials was given"
ABOUT_TRIALS = ("trial", "within", "again")
WITHOUT_TRIALS = ("root", "report", "details", "export", "no_trials")
NOT_KEPT = (
    "This plan is not kept, as nothing was tried: run --plan, --details and --export use the last"
    " one that was."
)
PAGES = {".md": MARKDOWN, ".html": HTML, ".htm": HTML}


@click.command("plan", context_settings={"allow_interspersed_args": False})
@duration_option(
    "--trial", default="20s", help="Stop each trial after this duration, not counting warm-up."
)
@duration_option(
    "--within",
    default="5m",
    help="Time limit for all trials; never more than a tenth of the job's remaining time.",
)
@click.option("--no-trials", is_flag=True, help="Run no trials; use those of the last plan.")
@click.option("--again", is_flag=True, help="Also try settings that have crashed this machine.")
@click.option(
    "--details",
    metavar="N",
    help="Show all details of option N of the last plan ('all': of every option) and exit.",
)
@paths_yes_option
@click.option(
    "--export",
    "export",
    type=click.Choice(list(TARGETS)),
    help="Write the files needed to run an option of the last plan, or of --root, elsewhere.",
)
@click.option("--option", type=click.IntRange(1), metavar="N", help="With --export: option number.")
@click.option("--force", is_flag=True, help="With --export and --report: overwrite files.")
@click.option(
    "--report",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the decision page of the last plan, or of --root, to FILE (.md or .html).",
)
@click.option(
    "--root",
    metavar="FILE-OR-DIR",
    type=click.Path(exists=True, path_type=Path),
    help="Estimate for a recorded machine; try nothing and leave the last plan as it is.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def command(  # noqa: PLR0913 - one argument an option
    ctx: click.Context,
    *,
    trial: timedelta,
    within: timedelta,
    no_trials: bool,
    again: bool,
    details: str | None,
    yes: bool,
    export: str | None,
    option: int | None,
    force: bool,
    report: Path | None,
    root: Path | None,
    as_json: bool,
    command: tuple[str, ...],
) -> None:
    """Compare the options for running COMMAND, with short trials, and recommend one.

    rocsteady plan -- python train.py. Without COMMAND, uses the command, deadline and budget in
    rocsteady.toml. Trials never write to this folder.

    Exit code: 0 an option was found, 1 none was found, 2 incorrect usage, 3 this machine or a
    recording cannot be read, 130 on ^C.
    """
    if sys.platform == "win32" and root is None and not (export or details or report):
        ctx.fail("a trial needs Linux or WSL2. Without trials: rocsteady plan --root machine.json")
    _check_together(ctx, option)
    folder = Path.cwd() if command else enter(find_job_folder(Path.cwd()))
    if (details is not None or report is not None) and root is None:
        _tell_more(_last_plan(folder, command), details, report)
        return
    memory, journal = _records(folder)
    instead = ", or plan without trials: --no-trials"
    trials = Trials(folder, memory, tell, retry_crashed=again, instead=instead)
    exports = None if export is None else partial(write_files, export, option, folder, force=force)
    try:
        if exports and (root is not None or not no_trials):
            exports(*_to_export(folder, command, root, journal, yes=yes))
            return
        job = job_here(folder, command, yes=yes)
        if root is None:  # else it is for another machine
            check_command(job.command, folder)
        if root is not None:
            _, plan = _recorded(job, folder, root, journal)
        else:
            goal = goal_of(job, folder, journal, time.time())
            bounded = PlanTrials(
                trials,
                _show_progress,
                each=trial.total_seconds(),
                within=within.total_seconds(),
                left=goal.left,
            )
            look_back(folder, memory)
            here = circumstances(job, folder, memory, journal, again=again)
            if no_trials:
                plan = _untried(job, folder, here, goal)
            else:
                words = [word for each in commands_of(job) for word in each[1:]]
                ask_about_paths([job.command[0], *words], folder, "trial", yes=yes)
                count = count_trials(job, here)
                times = f"up to {count} times" if count > 1 else "once"
                tell(
                    f"rocsteady: trials start your script {times}, and again for each workaround."
                    " What it sends (uploads, metrics, messages) or writes outside this folder"
                    " happens each time."
                )
                planner, plan = _try_options(job, here, goal, trials, bounded)
                remember(planner, here, memory, journal)
                keep_trials(bounded.kept(here.software), folder)
    except (KeyboardInterrupt, click.Abort):
        tell(STOPPED.format(changes_in_words(trials.changes)))
        ctx.exit(INTERRUPTED)
    finally:
        journal.close()
        memory.close()
    if details is not None or report is not None:
        _tell_more(plan, details, report)
        return
    plan = plan if root is not None else _kept(as_allowed(plan), folder)
    if exports:
        exports(job, (None, plan))
        return
    _show(plan, as_json=as_json)
    ctx.exit(FOUND if plan.options else NONE_FOUND)


def _check_together(ctx: click.Context, option: int | None) -> None:
    given = ctx.params
    report: Path | None = given["report"]
    _check_trials(ctx)
    if option is not None and not given["export"]:
        raise click.UsageError("--option needs --export")
    if given["force"] and not (given["export"] or report):
        raise click.UsageError("--force needs --export or --report")
    if report is not None:
        if given["export"] or given["details"] is not None or given["as_json"]:
            raise click.UsageError("--report cannot be combined with --export, --details or --json")
        if report.suffix.lower() not in PAGES:
            end = "end in .md or .html, such as plan.md"
            raise click.UsageError(f"--report {report}: the name must {end}")
        if report.exists() and not (given["force"] and report.is_file()):
            raise click.UsageError(f"--report {report}: already exists; use --force to overwrite")
    if given["as_json"] and (given["export"] or given["details"] is not None):
        raise click.UsageError("--json cannot be combined with --export or --details")


def _check_trials(ctx: click.Context) -> None:
    """Refuse what is about trials where none is made."""
    default = click.core.ParameterSource.DEFAULT
    typed = [name for name in ctx.params if ctx.get_parameter_source(name) is not default]
    about = [name for name in ABOUT_TRIALS if name in typed]
    about += ["no_trials"] * ("no_trials" in typed and not {"root", "export"} & {*typed})
    without = [name for name in WITHOUT_TRIALS if name in typed and name not in about[:1]]
    if about and without:
        first, other = (f"--{name.replace('_', '-')}" for name in (about[0], without[0]))
        raise click.UsageError(f"{first} cannot be combined with {other}, which makes no trials")


def _last_plan(folder: Path, command: tuple[str, ...]) -> Plan:
    """Read the last plan; one of another command than the one typed is not meant."""
    plan = saved_plan.load_plan(folder, command)
    if command and command != plan.command:
        asked, own = shown_command(command), shown_command(plan.command)
        raise RequestError(
            f"the last plan is for another command ({own}). Plan this one first: rocsteady plan --"
            f" {asked}"
        )
    return plan


def _recorded(job: Job, folder: Path, root: Path, journal: Journal) -> tuple[Machine, Plan]:
    """Return a recorded machine, and the options that it has."""
    goal = goal_of(job, folder, journal, time.time())
    plan = recorded_plan(job, folder, open_root(root, None), str(root), goal)
    return examine(open_root(root, None), doctors_knowledge().variables)[0], plan


def _to_export(
    folder: Path, command: tuple[str, ...], root: Path | None, journal: Journal, *, yes: bool
) -> tuple[Job, tuple[Machine | None, Plan | None]]:
    """Return the job, and the recorded machine that it is for, if it is for one."""
    command = command if root is not None else _last_plan(folder, command).command
    job = job_here(folder, command, yes=yes)
    return job, (None, None) if root is None else _recorded(job, folder, root, journal)


def _untried(job: Job, folder: Path, here: Circumstances, goal: Goal) -> Plan:
    """Return a plan by what is known, and by the trials that were kept."""
    kept = kept_trials(folder, here.software)
    planner = worked_planner(job, here, goal, kept.run, why=UNTRIED)
    plan = make_plan(job, folder, here, goal, planner)
    count = len(kept.trials)
    return replace(plan, trials=count, trial_seconds=kept.seconds, tried=kept.made)


def _try_options(
    job: Job, here: Circumstances, goal: Goal, trials: Trials, bounded: PlanTrials
) -> tuple[Planner, Plan]:
    with trials:
        planner = worked_planner(job, here, goal, bounded.run, say=bounded.say)
        plan = with_trials(make_plan(job, trials.folder, here, goal, planner), trials)
        if trials.stopped:  # ^C during a trial ends it in the same way as between two
            raise KeyboardInterrupt
    return planner, plan


def _records(folder: Path) -> tuple[Memory, Journal]:
    """Open what is known so far. Nothing is made in the user's folder."""
    own = find_journal_place(saved_plan.home(folder))
    return Memory(own), Journal(next(iter(existing_places(folder)), own))


def as_allowed(plan: Plan) -> Plan:
    """Leave out what a run would refuse by the administrator's policy, and say so."""
    policy = read_policy()
    if policy.mode is Mode.FULL:
        return plan
    why = (
        f"run --plan is not allowed here by {policy.path} ({policy.words}). Without the plan:"
        f" rocsteady run -- {shown_command(plan.command)}"
    )
    options = tuple(
        replace(option, do="") if option.basis is Basis.TRIAL else option for option in plan.options
    )
    return replace(plan, options=options, chain=None, warnings=(*plan.warnings, why))


def _kept(plan: Plan, folder: Path) -> Plan:
    """Keep the plan for ``run --plan``, and the trials of the last; if that fails, it says so."""
    rows = (*plan.options, *plan.ruled_out)
    tried = any(option.basis is Basis.TRIAL or option.kinds for option in rows)
    if not tried and saved_plan.has_trials(folder):
        options = tuple(replace(option, do="") for option in plan.options)  # it is of the last one
        return replace(plan, options=options, warnings=(*plan.warnings, NOT_KEPT))
    why = saved_plan.save_plan(plan, folder)
    return replace(plan, warnings=(*plan.warnings, why)) if why else plan


def _show_progress(
    progress_at: Callable[[float], tuple[str, float]],
) -> contextlib.AbstractContextManager[None]:
    return progress(lambda elapsed: ProgressLine(*progress_at(elapsed)))


def _show(plan: Plan, *, as_json: bool) -> None:
    if as_json:
        show_json(plan)
        return
    show(render_plan(plan, now=time.time(), page=page_here()))


def _tell_more(plan: Plan, which: str | None, report: Path | None) -> None:
    if report is None:
        _show_details(plan, which or "")
        return
    page = decision_page(plan, now=time.time())
    text = render_template(PAGES[report.suffix.lower()], page=page)
    write_asked("--report", report, text.encode())


def _show_details(plan: Plan, which: str) -> None:
    options = (*plan.options, *plan.ruled_out, *plan.not_tried)
    if which != "all":
        if not which.isdecimal():
            raise click.UsageError(f"--details: {which!r} is neither a number nor 'all'")
        options = (saved_plan.option_numbered(plan, int(which)),)
    pages = [render_option(each, plan, now=time.time(), page=page_here()) for each in options]
    show("\n".join(pages))
