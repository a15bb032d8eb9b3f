"""``rocsteady doctor``: what this machine is, what is wrong with it, and what it can install."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import click
import msgspec

from rocsteady import __version__
from rocsteady.cli.main import CommandGroup
from rocsteady.cli.options import open_root, python_option, root_option
from rocsteady.doctor.diagnosis import diagnose, doctors_knowledge
from rocsteady.doctor.knowledge.reader import DataFolder, Knowledge
from rocsteady.doctor.knowledge.state import is_out_of_date
from rocsteady.doctor.knowledge.values import Severity
from rocsteady.doctor.machine.machine import examine
from rocsteady.doctor.machine.view import View
from rocsteady.errors import ExaminationError
from rocsteady.screens.doctor import (
    render_diagnosis,
    render_machine,
    render_paste,
    render_rule,
    render_rule_list,
)
from rocsteady.screens.screen import json_text, layout, present, show, tell, without_secrets
from rocsteady.store.identity import machine_fingerprint
from rocsteady.store.machine_history import memory_to_read
from rocsteady.store.policy import read_policy
from rocsteady.store.redaction import redactor_here
from rocsteady.suggestions import no_such

NOTHING_BLOCKS, SOMETHING_BLOCKS = 0, 1
ALL_ACT, SOME_DO_NOT = 0, 1  # variables
ONE_WORKS, NONE_WORKS = 0, 1  # torch builds
ALL_MATCH, SOME_DIFFER, UNREADABLE = 0, 1, 3  # machines of a fleet
PYTHON_VERSION = re.compile(r"3\.\d{1,2}(\.\d{1,2})?")


EXIT_CODES = """\b
Exit codes:
  0  nothing blocks training
  1  something does
  2  incorrect usage
  3  could not examine the machine
"""


class DoctorGroup(CommandGroup):
    """``--fleet FILES...`` takes all files that follow, so it is a command of its own."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--fleet" in args:
            args = ["fleet", *(word for word in args if word != "--fleet")]
        return super().parse_args(ctx, args)


@click.group(
    "doctor",
    cls=DoctorGroup,
    invoke_without_command=True,
    epilog=EXIT_CODES,
    subcommand_metavar="[env|wheels] [ARGS]...",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@python_option
@root_option
@click.option("--list", "list_rules", is_flag=True, help="List every rule and exit.")
@click.option(
    "--knowledge",
    "about_knowledge",
    is_flag=True,
    help="Show the version and age of the knowledge base and how to upgrade it, and exit.",
)
@click.option("--facts", is_flag=True, help="Show every fact that was read, and exit.")
@click.option(
    "--record",
    "recording",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the facts to FILE for sharing, with names and serial numbers removed, and exit.",
)
@click.option("-v", "--verbose", is_flag=True, help="Show notes and details, too.")
@click.option(
    "--paste", is_flag=True, help="Print a block for an issue: everything, without names."
)
@click.option("--strict", is_flag=True, help="Also exit with code 1 for risks.")
@click.option(
    "--fleet",
    is_flag=True,
    help="Compare the machines of the FILES that follow, written by --record or --facts --json.",
)
@click.pass_context
def command(  # noqa: PLR0913 - one argument an option
    ctx: click.Context,
    *,
    as_json: bool,
    python: str | None,
    root: Path | None,
    list_rules: bool,
    about_knowledge: bool,
    facts: bool,
    recording: Path | None,
    verbose: bool,
    paste: bool,
    strict: bool,
    fleet: bool,
) -> None:
    """Check this machine for problems that affect training, and say how to fix them.

    Only reads files: imports no torch, runs no vendor tool and changes nothing.

    """
    del fleet  # taken by DoctorGroup
    if ctx.invoked_subcommand is not None:
        _refuse_options_before(ctx, ctx.invoked_subcommand)
        return
    knowledge = doctors_knowledge()
    if about_knowledge:
        _show_knowledge(knowledge, as_json=as_json)
        return
    if list_rules:
        show(explained(knowledge, None, as_json=as_json))
        return
    machine, view = examine(open_root(root, python), knowledge.variables)
    if recording is not None:
        _record(recording, view, knowledge)
        return
    if facts:
        present(machine, render_machine, as_json=as_json)
        return
    policy = read_policy()
    if policy.path:
        tell(f"rocsteady: policy {policy.path}: {policy.words}")
    seen = memory_to_read().observations(machine_fingerprint()) if root is None else ()
    diagnosis = diagnose(machine, knowledge, observations=seen)
    if paste and not as_json:
        show(redactor_here(view.environment or {}).text(render_paste(without_secrets(diagnosis))))
    else:
        present(diagnosis, partial(render_diagnosis, everything=verbose), as_json=as_json)
    counted = (Severity.BLOCKS, Severity.RISKS) if strict else (Severity.BLOCKS,)
    blocked = any(diagnosis.having(severity) for severity in counted)
    ctx.exit(SOMETHING_BLOCKS if blocked else NOTHING_BLOCKS)


def _show_knowledge(knowledge: Knowledge, *, as_json: bool) -> None:
    from rocsteady.doctor.knowledge.report import knowledge_report  # noqa: PLC0415 - seldom needed
    from rocsteady.failures.remedy import load_remedies  # noqa: PLC0415
    from rocsteady.screens.doctor import render_knowledge  # noqa: PLC0415

    data = DataFolder()
    report = knowledge_report(
        knowledge,
        data,
        remedies=[remedy.sources for remedy in load_remedies(data).values()],
        today=datetime.now(tz=UTC).date(),
    )
    present(report, render_knowledge, as_json=as_json)


def explained(knowledge: Knowledge, name: str | None, *, as_json: bool) -> str:
    """Return all rules, one of them in full, or what is known of a GPU."""
    if name in knowledge.arches:
        return _gpu(knowledge, name, as_json=as_json)
    chosen = [knowledge.rules[name]] if name else list(knowledge.rules.values())
    if as_json:
        sources = {key: knowledge.sources[key] for rule in chosen for key in rule.sources}
        return json_text({"version": 1, "rules": chosen, "sources": sources})
    width, colour = layout(sys.stdout)
    if name is None:
        return render_rule_list(chosen, width=width, colour=colour)
    old = is_out_of_date(chosen[0], knowledge.sources, datetime.now(tz=UTC).date())
    return render_rule(chosen[0], knowledge.sources, width=width, colour=colour, out_of_date=old)


def _gpu(knowledge: Knowledge, gfx: str, *, as_json: bool) -> str:
    from rocsteady.doctor.gpu_reports import gpu_reports  # noqa: PLC0415 - seldom needed
    from rocsteady.screens.doctor import render_gpu  # noqa: PLC0415

    reports = gpu_reports(gfx, knowledge)
    if as_json:
        threads = reports.threads
        return json_text(
            {"version": 1, "gpu": reports.arch, "rules": reports.rules, "threads": threads}
        )
    width, colour = layout(sys.stdout)
    return render_gpu(reports, width=width, colour=colour)


def _refuse_options_before(ctx: click.Context, subcommand: str) -> None:
    """Refuse an option that would be ignored: each subcommand has its own, after its name."""
    for name in ctx.params:
        if ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            ctx.fail(f"options go after {subcommand}: rocsteady doctor {subcommand} --help")


def _record(path: Path, view: View, knowledge: Knowledge) -> None:
    from rocsteady.doctor.machine.recording import record  # noqa: PLC0415 - seldom needed
    from rocsteady.printable import printable_json  # noqa: PLC0415
    from rocsteady.system.atomic_file import write_whole  # noqa: PLC0415

    note = f"recorded by rocsteady {__version__} on {datetime.now(tz=UTC).date().isoformat()}"
    recording = record(view, redactor_here(view.environment or {}), knowledge.variables, note)
    text = msgspec.json.format(msgspec.json.encode(recording), indent=1).decode()
    content = printable_json(text).encode() + b"\n"
    try:
        write_whole(path, content)
    except OSError as error:
        raise ExaminationError(f"{path}: {error.strerror}") from None
    tell(f"Wrote {len(recording.files):,} paths ({len(content):,} bytes) to {path}.")
    tell(
        "Secrets, serial numbers, host names, user names and home folders were replaced. Read the"
        " file before you send it; nothing was sent."
    )


@command.command("fleet", hidden=True)
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def fleet(ctx: click.Context, *, files: tuple[Path, ...], as_json: bool) -> None:
    """Compare many machines: which match, what one lacks, and which rules fire on some only.

    FILES are recordings (doctor --record) or facts (doctor --facts --json), one a machine.

    Exit code: 0 all machines of a group match, 1 some do not, 2 incorrect usage, 3 a file could
    not be read.
    """
    from rocsteady.doctor.fleet import fleet_report  # noqa: PLC0415 - seldom needed
    from rocsteady.screens.fleet import render_fleet  # noqa: PLC0415

    knowledge = doctors_knowledge()
    report = fleet_report(files, knowledge)
    present(report, partial(render_fleet, rules=knowledge.rules), as_json=as_json)
    if report.unreadable:
        ctx.exit(UNREADABLE)
    differ = any(group.different or group.partial_rules for group in report.groups)
    ctx.exit(SOME_DIFFER if differ else ALL_MATCH)


@command.command("env")
@click.argument(
    "file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@python_option
@root_option
@click.pass_context
def env(
    ctx: click.Context, *, file: Path | None, as_json: bool, python: str | None, root: Path | None
) -> None:
    """Check your ROCm and PyTorch environment variables.

    Without FILE, checks the variables that are set now. FILE can be any text file that sets
    variables, such as a script, a Dockerfile, .env or a compose file; nothing in it is executed.

    Exit code: 0 no problems, 1 at least one variable does harm, has no effect or is invalid,
    2 incorrect usage, 3 could not examine the machine.
    """
    from rocsteady.doctor.env.variables import review_variables  # noqa: PLC0415 - seldom needed
    from rocsteady.screens.doctor import render_variables  # noqa: PLC0415

    review = review_variables(open_root(root, python), file)
    present(review, render_variables, as_json=as_json)
    ctx.exit(SOME_DO_NOT if review.wrong else ALL_ACT)


@command.command("wheels")
@click.option(
    "--gpu",
    "gpus",
    metavar="NAME",
    multiple=True,
    help="GPU, such as gfx1100 or 'RX 7900 XT'. Repeat for each GPU.",
)
@click.option("--python", metavar="VERSION", help="Python version, such as 3.12.")
@click.option(
    "--os", "system", type=click.Choice(["linux", "wsl", "windows"]), help="Operating system."
)
@click.option("--list", "listing", is_flag=True, help="List the GPU names and exit.")
@click.option("--all", "everything", is_flag=True, help="Show every build in full.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@root_option
@click.pass_context
def wheels(  # noqa: PLR0913 - one argument an option
    ctx: click.Context,
    *,
    gpus: tuple[str, ...],
    python: str | None,
    system: str | None,
    listing: bool,
    everything: bool,
    as_json: bool,
    root: Path | None,
) -> None:
    """List the torch builds for a GPU, with the command to install each.

    GPU, Python and operating system default to those of this machine. Official means that PyTorch
    or AMD tests the build for this GPU. Nothing is downloaded.

    Exit code: 0 at least one build has no known blocking problem, 1 none has, 2 incorrect usage, 3
    could not examine the machine.
    """
    from rocsteady.doctor.wheels import find_torch_offers  # noqa: PLC0415 - seldom needed
    from rocsteady.screens.torch_offers import render_gpus, render_offers  # noqa: PLC0415

    if listing:
        width, colour = layout(sys.stdout)
        show(render_gpus(doctors_knowledge(), width=width, colour=colour))
        return
    if python is not None and not PYTHON_VERSION.fullmatch(python):
        raise click.BadParameter(
            f"expected a version such as 3.12, got {python!r}.", param_hint="--python"
        )
    try:
        found = find_torch_offers(open_root(root, None), gpus=gpus, system=system, python=python)
    except LookupError as error:
        arches = doctors_knowledge().arches
        known = [*arches, *(card for arch in arches.values() for card in arch.cards)]
        listed = (
            "To list the names: rocsteady doctor wheels --list. To use this machine's GPU: omit"
            " --gpu."
        )
        raise click.BadParameter(
            f"{no_such('GPU', str(error), known)} {listed}", param_hint="--gpu"
        ) from None
    present(found, partial(render_offers, everything=everything), as_json=as_json)
    ctx.exit(ONE_WORKS if found.usable() else NONE_WORKS)
