"""``rocsteady doctor``: what is wrong with this machine, and what to do."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import click

from rocsteady.cli.options import open_root, python_option, root_option
from rocsteady.doctor.diagnosis import diagnose, doctors_knowledge
from rocsteady.doctor.knowledge.reader import DataFolder, Knowledge
from rocsteady.doctor.knowledge.state import is_out_of_date
from rocsteady.doctor.knowledge.values import Severity
from rocsteady.doctor.machine.machine import examine
from rocsteady.screens.doctor import render_diagnosis, render_rule
from rocsteady.screens.screen import json_text, page_here, present, tell
from rocsteady.store.identity import machine_fingerprint
from rocsteady.store.machine_history import memory_to_read
from rocsteady.store.policy import read_policy

NOTHING_BLOCKS, SOMETHING_BLOCKS = 0, 1


EXIT_CODES = """\b
Exit codes:
  0  nothing blocks training
  1  something does
  2  incorrect usage
  3  could not examine the machine
"""


@click.command("doctor", epilog=EXIT_CODES)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@python_option
@root_option
@click.option(
    "--knowledge",
    "about_knowledge",
    is_flag=True,
    help="Show the version and age of the knowledge base and how to upgrade it, and exit.",
)
@click.option("-v", "--verbose", is_flag=True, help="Show notes and details, too.")
@click.option("--strict", is_flag=True, help="Also exit with code 1 for risks.")
@click.pass_context
def command(  # noqa: PLR0913 - one argument an option
    ctx: click.Context,
    *,
    as_json: bool,
    python: str | None,
    root: Path | None,
    about_knowledge: bool,
    verbose: bool,
    strict: bool,
) -> None:
    """Check this machine for problems that affect training, and say how to fix them.

    Only reads files: imports no torch, runs no vendor tool and changes nothing.
    """
    knowledge = doctors_knowledge()
    if about_knowledge:
        _show_knowledge(knowledge, as_json=as_json)
        return
    machine, _ = examine(open_root(root, python), knowledge.variables)
    policy = read_policy()
    if policy.path:
        tell(f"rocsteady: policy {policy.path}: {policy.words}")
    seen = memory_to_read().observations(machine_fingerprint()) if root is None else ()
    diagnosis = diagnose(machine, knowledge, observations=seen)
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


def explained(knowledge: Knowledge, name: str, *, as_json: bool) -> str:
    """Return a rule in full, or what is known of a GPU."""
    if name in knowledge.arches:
        return _gpu(knowledge, name, as_json=as_json)
    rule = knowledge.rules[name]
    if as_json:
        sources = {key: knowledge.sources[key] for key in rule.sources}
        return json_text({"version": 1, "rules": [rule], "sources": sources})
    old = is_out_of_date(rule, knowledge.sources, datetime.now(tz=UTC).date())
    return render_rule(rule, knowledge, page=page_here(), out_of_date=old)


def _gpu(knowledge: Knowledge, gfx: str, *, as_json: bool) -> str:
    from rocsteady.doctor.gpu_reports import gpu_reports  # noqa: PLC0415 - seldom needed
    from rocsteady.screens.doctor import render_gpu  # noqa: PLC0415

    reports = gpu_reports(gfx, knowledge)
    if as_json:
        threads = reports.threads
        return json_text(
            {"version": 1, "gpu": reports.arch, "rules": reports.rules, "threads": threads}
        )
    return render_gpu(reports, page=page_here())
