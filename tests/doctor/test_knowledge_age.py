"""What is said of knowledge that is old, or of a machine that is newer than it."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

import msgspec

from rocsteady.doctor.knowledge_age import knowledge_state
from rocsteady.knowledge.edition import Edition, newest_rocm, newest_torch

if TYPE_CHECKING:
    from tests.conftest import Recorded

EDITION = Edition(date="2026-11-01", kernel="7.0")


def test_after_90_days_it_is_called_old(recorded: Recorded) -> None:
    machine, knowledge = recorded.machine("rx7900xtx"), recorded.knowledge

    on_time = knowledge_state(machine, knowledge, EDITION, today=date(2027, 1, 30))
    late = knowledge_state(machine, knowledge, EDITION, today=date(2027, 1, 31))

    assert (on_time.age_days, on_time.notes) == (90, ())
    assert late.notes == (
        "The knowledge base is 91 days old. To update it: rocsteady knowledge update --from SOURCE",
    )


def test_what_is_newer_than_any_entry_is_said(recorded: Recorded) -> None:
    machine, knowledge = recorded.machine("rx7900xtx"), recorded.knowledge
    assert machine.torch is not None
    newer = msgspec.structs.replace(
        machine,
        torch=msgspec.structs.replace(machine.torch, version="2.15.0+rocm10.1", rocm="10.1"),
        system=msgspec.structs.replace(machine.system, kernel="7.1.3-arch1-1"),
        gpus=msgspec.structs.replace(
            machine.gpus, gpus=(msgspec.structs.replace(machine.gpus.gpus[0], gfx="gfx1300"),)
        ),
    )

    notes = knowledge_state(newer, knowledge, EDITION, today=date(2026, 11, 2)).notes

    assert notes == (
        "torch 2.15.0+rocm10.1 is newer than the knowledge base covers (up to 2.14).",
        "ROCm 10.1 is newer than the knowledge base covers (up to 10.0).",
        "Linux 7.1.3-arch1-1 is newer than the knowledge base covers (up to 7.0).",
        "No entry of the knowledge base covers gfx1300.",
    )


def test_no_recorded_machine_is_newer_but_for_its_kernel(
    recorded: Recorded, every_machine: str
) -> None:
    machine = recorded.machine(every_machine)

    state = knowledge_state(machine, recorded.knowledge, EDITION, today=date(2026, 11, 2))

    assert not [note for note in state.notes if "torch" in note or "ROCm" in note]


def test_what_is_covered_follows_from_the_table_of_wheels(recorded: Recorded) -> None:
    assert str(newest_torch(recorded.knowledge)) == "2.14"
    assert str(newest_rocm(recorded.knowledge)) == "10.0"
