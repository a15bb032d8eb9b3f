"""``rocsteady drill``: rehearse what may go wrong, before a run is left alone overnight."""

from __future__ import annotations

import shlex
from pathlib import Path

import click
import msgspec

from rocsteady.cli.options import Parsed, paths_yes_option
from rocsteady.cli.project import enter, find_job_folder
from rocsteady.errors import NotRecordedError, RocsteadyError
from rocsteady.probe.drill import NAME, Drill, Fault, read_faults
from rocsteady.probe.values import DrillResult
from rocsteady.screens.job_questions import ask_about_paths, check_command, job_here
from rocsteady.screens.probe import render_drill
from rocsteady.screens.run_lines import RunScreen
from rocsteady.screens.screen import page_here, show, show_json, tell
from rocsteady.store.redaction import shown_command

SURVIVED, NOT_SURVIVED = 0, 1


@click.command("drill", context_settings={"allow_interspersed_args": False})
@click.option(
    "--faults",
    type=Parsed("KIND[:PLACE]@STEP[,...]", read_faults),
    default="kill@50",
    show_default=True,
    help="Faults to inject, such as hang:backward@200,kill@500 (at that optimizer step) or"
    " oom:aten::mm@40 (at that call of the operator). KIND: hang, oom, fault, kill, segv, abort,"
    " nan.",
)
@click.option(
    "--scratch",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep the script's output here. Default: your account's state folder.",
)
@paths_yes_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def command(  # noqa: PLR0913 - one argument an option
    ctx: click.Context,
    *,
    faults: tuple[Fault, ...],
    scratch: Path | None,
    yes: bool,
    as_json: bool,
    command: tuple[str, ...],
) -> None:
    """Inject faults into a copy of COMMAND and show how each is handled.

    rocsteady drill --faults hang:backward@200,kill@500 -- python train.py. Without --faults, kills
    it once. Without COMMAND, runs the command in rocsteady.toml. Nothing is written to this folder.
    The drill ends 50 steps after the last fault, or after 5 steps and 2 minutes if steps are slow.

    Exit code: 0 the script survived every fault, 1 it did not, 2 incorrect usage, 130 on ^C.
    """
    scratch = scratch.absolute() if scratch else None
    folder = Path.cwd() if command else enter(find_job_folder(Path.cwd()))
    job = job_here(folder, command, yes=yes)
    check_command(job.command, folder)
    patterns = job.resume.checkpoints if job.resume else ()
    ask_about_paths((*job.command, *patterns), folder, NAME, yes=yes)
    try:
        with Drill(folder, scratch, tell, RunScreen()) as drill:
            result, stopped = drill.carry_out(job, faults)
            code = SURVIVED if result.all_survived else NOT_SURVIVED
            code = code if stopped is None else stopped
            drill.keeps = code != SURVIVED or bool(result.changed)
            logs = drill.logs()
    except NotRecordedError as error:
        raise RocsteadyError(f"{error}. The drill was not started") from None
    if drill.keeps:
        result = msgspec.structs.replace(result, kept=str(drill.root))
    result = msgspec.structs.replace(result, next_command=_next(result, command, logs))
    if as_json:
        show_json({**msgspec.to_builtins(result), "survived": result.all_survived})
    else:
        show(render_drill(result, page=page_here()))
    ctx.exit(code)


def _next(result: DrillResult, typed: tuple[str, ...], logs: list[Path]) -> str:
    """Return what to type next: the run itself, or what explains the failure."""
    if result.all_survived:
        return shown_command(("rocsteady", "run", *(("--", *typed) if typed else ())))
    return shlex.join(("rocsteady", "explain", str(logs[-1]))) if logs else "rocsteady doctor"
