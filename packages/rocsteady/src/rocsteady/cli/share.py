"""``rocsteady doctor --share``: show what could be shared, and open the form if that is wanted."""

from __future__ import annotations

import webbrowser
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import click

from rocsteady.cli.project import open_journals
from rocsteady.doctor.diagnosis import brief
from rocsteady.doctor.facts import gather
from rocsteady.doctor.knowledge.failures import Component, load_failures
from rocsteady.doctor.knowledge.observations import RUN, Names, Tried, Workaround
from rocsteady.doctor.knowledge.reader import DataFolder, Knowledge, load_knowledge
from rocsteady.doctor.machine.machine import Machine, software_of
from rocsteady.doctor.machine_at_start import machine_at_start
from rocsteady.doctor.shared_entry import (
    FORM,
    build_entry,
    entry_text,
    form_address,
    probes_tried,
)
from rocsteady.doctor.values import Brief
from rocsteady.errors import ExaminationError
from rocsteady.failures.remedy import load_remedies
from rocsteady.model import FailureKind, RunEvent
from rocsteady.probe.catalog import PROBES
from rocsteady.screens.job_questions import at_a_terminal
from rocsteady.screens.screen import show, tell
from rocsteady.store.identity import machine_fingerprint
from rocsteady.store.journal import Journal
from rocsteady.store.machine_history import memory_to_read
from rocsteady.store.values import RunRecord

ELSEWHERE = (Component.SCRIPT, Component.NETWORK, Component.DISK)  # says nothing of a GPU
BY_SOMEBODY = (
    FailureKind.INTERRUPTED,
    FailureKind.KILLED,
    FailureKind.STOPPED_BY_ROCSTEADY,
    FailureKind.UNKNOWN,
)


def share(machine: Machine, tried: Sequence[Tried]) -> None:
    """Show the entry of a machine; open the form with it if the user agrees."""
    if not tried:
        raise ExaminationError(
            "nothing to share yet: run rocsteady probe, or train with rocsteady run, first"
        )
    month = datetime.now(tz=UTC).strftime("%Y-%m")
    entry = build_entry(machine, load_knowledge(), shared_names(), tried, month)
    show(entry_text(entry, indent=2) + "\n")
    address = form_address(entry)
    if at_a_terminal():
        tell("This is all that would be shared. Nothing has been sent.")
        if not click.confirm("Open a form with it in the browser? You submit it there", err=True):
            return
        if webbrowser.open(address):
            return
        tell("rocsteady: could not start a browser")
    paste = "; paste the entry into it" if address == FORM else ""
    tell(f"Nothing was sent. To share it, open this form{paste}: {address}")


def shared_names() -> Names:
    """Return the names that an entry may have: those of the package, never the user's own."""
    data = DataFolder()
    kinds = load_failures(data).kinds.values()
    return Names(
        failures={
            kind.id
            for kind in kinds
            if kind.component not in ELSEWHERE and kind.id not in BY_SOMEBODY
        },
        workarounds=set(load_remedies(data)),
        probes={probe.name for probe in PROBES},
    )


def tried_here(machine: Machine, knowledge: Knowledge, names: Names) -> list[Tried]:
    """Return what probes and the runs of this project came to, with the software of now."""
    memory, where = memory_to_read(), machine_fingerprint()
    software = software_of(machine)
    same = (each for each in memory.observations(where) if each.software == software)
    found = probes_tried(same, names)
    now = brief(machine, gather(machine, knowledge), knowledge)
    runs: list[RunRecord] = []
    with open_journals() as journals:
        for journal in journals:
            runs += _runs(journal, where, now)
    if not runs:
        return found
    failures: dict[str, int] = {}
    for run in runs:
        for each in run.failures:
            if each.failure.kind in names.failures:
                failures[each.failure.kind] = failures.get(each.failure.kind, 0) + 1
    titles = {run.run.name for run in runs}
    helped = {
        (each.failure, each.remedy, each.run)
        for each in memory.helped_here(where)
        if each.run in titles and each.remedy in names.workarounds and each.failure in failures
    }
    pairs = [(failure, remedy) for failure, remedy, _ in helped]
    workarounds = tuple(
        Workaround(failure=kind, workaround=remedy, runs=min(failures[kind], pairs.count(pair)))
        for pair in sorted(set(pairs))
        for kind, remedy in (pair,)
    )
    times = sum(len(run.attempts) for run in runs)
    return [*found, Tried(what=RUN, times=times, failures=failures, helped=workarounds)]


def _runs(journal: Journal, machine: str, now: Brief) -> list[RunRecord]:
    """Return the runs of this machine as it is now, in which no fault was injected."""
    found = []
    for line in journal.runs():
        began = machine_at_start(Path(line.run.folder))
        if line.run.machine != machine or began is None:
            continue
        then = began.diagnosis.machine
        story = journal.story(line.run.name)
        injected = any(message.event is RunEvent.FAULTS for message in story.messages)
        if story.attempts and not injected and (then.gpus, then.torch) == (now.gpus, now.torch):
            found.append(story)
    return found
