"""``rocsteady doctor``: what is this machine, what is wrong with it, says who."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

import click

from rocsteady.cli.machine_options import open_root, python_option, root_option
from rocsteady.doctor.diagnosis import diagnose, doctors_knowledge
from rocsteady.doctor.knowledge.reader import Knowledge
from rocsteady.doctor.knowledge.values import Severity
from rocsteady.doctor.machine.machine import examine
from rocsteady.screens.diagnosis import render_diagnosis
from rocsteady.screens.rules import render_rule, render_rule_list
from rocsteady.screens.screen import json_text, layout, show, show_json, without_secrets
from rocsteady.store.identity import machine_fingerprint
from rocsteady.store.machine_history import memory_to_read
from rocsteady.suggestions import no_such

NOTHING_BLOCKS, SOMETHING_BLOCKS = 0, 1
LISTED = "To list them: rocsteady doctor --list"


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@python_option
@root_option
@click.option("--list", "list_rules", is_flag=True, help="List every rule and exit.")
@click.option("--explain", metavar="ID", help="Explain one rule and exit.")
@click.option(
    "--knowledge",
    "about_knowledge",
    is_flag=True,
    help="Show the version and age of the knowledge base and how to upgrade it, and exit.",
)
@click.option("--strict", is_flag=True, help="Also exit with code 1 for risks.")
@click.pass_context
def command(  # noqa: PLR0913 - one argument an option
    ctx: click.Context,
    *,
    as_json: bool,
    python: str | None,
    root: Path | None,
    list_rules: bool,
    explain: str | None,
    about_knowledge: bool,
    strict: bool,
) -> None:
    """Check this machine for problems that affect training, and say how to fix them.

    Only reads files: imports no torch, runs no vendor tool and changes nothing.

    Exit code: 0 nothing blocks training, 1 something does, 2 incorrect usage, 3 could not examine
    it.
    """
    knowledge = doctors_knowledge()
    if about_knowledge:
        _show_knowledge(knowledge, as_json=as_json)
        return
    if list_rules or explain:
        show(_rules(knowledge, explain, as_json=as_json))
        return
    machine, _ = examine(open_root(root, python), knowledge.variables)
    seen = memory_to_read().observations(machine_fingerprint()) if root is None else ()
    diagnosis = diagnose(machine, knowledge, observations=seen)
    if as_json:
        show_json(diagnosis)
    else:
        width, colour = layout(sys.stdout)
        show(render_diagnosis(without_secrets(diagnosis), width=width, colour=colour))
    counted = (Severity.BLOCKS, Severity.RISKS) if strict else (Severity.BLOCKS,)
    blocked = any(diagnosis.having(severity) for severity in counted)
    ctx.exit(SOMETHING_BLOCKS if blocked else NOTHING_BLOCKS)


def _show_knowledge(knowledge: Knowledge, *, as_json: bool) -> None:
    from rocsteady.doctor.knowledge.reader import DataFolder  # noqa: PLC0415
    from rocsteady.doctor.knowledge_report import knowledge_report  # noqa: PLC0415 - seldom needed
    from rocsteady.failures.remedy import load_remedies  # noqa: PLC0415
    from rocsteady.screens.knowledge import render_knowledge  # noqa: PLC0415

    data = DataFolder()
    report = knowledge_report(
        knowledge,
        data,
        remedies=[remedy.sources for remedy in load_remedies(data).values()],
        today=datetime.now(tz=UTC).date(),
    )
    if as_json:
        show_json(report)
    else:
        width, colour = layout(sys.stdout)
        show(render_knowledge(report, width=width, colour=colour))


def _rules(knowledge: Knowledge, explain: str | None, *, as_json: bool) -> str:
    """Return the list of rules, or the story of one."""
    if explain is not None and explain not in knowledge.rules:
        raise click.BadParameter(
            no_such("rule", explain, knowledge.rules, LISTED), param_hint="--explain"
        )
    chosen = [knowledge.rules[explain]] if explain else list(knowledge.rules.values())
    if as_json:
        sources = {key: knowledge.sources[key] for rule in chosen for key in rule.sources}
        return json_text({"version": 1, "rules": chosen, "sources": sources})
    width, colour = layout(sys.stdout)
    if explain is None:
        return render_rule_list(chosen, width=width, colour=colour)
    return render_rule(chosen[0], knowledge.sources, width=width, colour=colour)
