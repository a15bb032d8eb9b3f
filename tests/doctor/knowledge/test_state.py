"""The age of the knowledge, machines that are newer than it, and how each installer upgrades it."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from rocsteady.doctor.knowledge.reader import DataFolder
from rocsteady.doctor.knowledge.report import knowledge_report, upgrade_command
from rocsteady.doctor.knowledge.state import is_out_of_date, knowledge_state, last_checked

if TYPE_CHECKING:
    from tests.conftest import Recorded


def test_after_90_days_it_is_called_old(recorded: Recorded) -> None:
    machine, knowledge = recorded.machine("rx7900xtx"), recorded.knowledge

    on_time = knowledge_state(knowledge, machine, today=date(2027, 1, 30))
    late = knowledge_state(knowledge, machine, today=date(2027, 1, 31))

    assert (on_time.age_days, on_time.notes) == (90, ())
    assert late.notes == (
        "The knowledge base is 91 days old. To update it: rocsteady doctor --knowledge",
    )


def test_what_is_newer_than_any_entry_is_said(recorded: Recorded) -> None:
    machine, knowledge = recorded.machine("rx7900xtx"), recorded.knowledge
    assert machine.torch is not None
    newer = msgspec.structs.replace(
        machine,
        torch=msgspec.structs.replace(machine.torch, version="2.15.0+rocm10.3", rocm="10.3"),
        system=msgspec.structs.replace(machine.system, kernel="7.1.3-arch1-1"),
        gpus=msgspec.structs.replace(
            machine.gpus, gpus=(msgspec.structs.replace(machine.gpus.gpus[0], gfx="gfx1300"),)
        ),
    )

    notes = knowledge_state(knowledge, newer, today=date(2026, 11, 2)).notes

    assert notes == (
        "torch 2.15.0+rocm10.3 is newer than the knowledge base covers (up to 2.14).",
        "ROCm 10.3 is newer than the knowledge base covers (up to 10.2).",
        "Linux 7.1.3-arch1-1 is newer than the knowledge base covers (up to 7.0).",
        "No entry of the knowledge base covers gfx1300.",
    )


def test_no_recorded_machine_is_newer_but_for_its_kernel(
    recorded: Recorded, every_machine: str
) -> None:
    machine = recorded.machine(every_machine)

    state = knowledge_state(recorded.knowledge, machine, today=date(2026, 11, 2))

    assert not [note for note in state.notes if "torch" in note or "ROCm" in note]


def test_what_is_covered_follows_from_the_table_of_wheels(recorded: Recorded) -> None:
    assert str(recorded.knowledge.newest_torch()) == "2.14"
    assert str(recorded.knowledge.newest_rocm()) == "10.2"


def test_what_was_ignored_is_said(recorded: Recorded) -> None:
    knowledge = msgspec.structs.replace(recorded.knowledge, ignored=("a", "b"))

    notes = knowledge_state(knowledge, today=date(2026, 11, 2)).notes

    assert notes[0].startswith("2 entries of the knowledge base ignored")


def test_each_table_has_its_size_and_the_age_of_its_newest_source(recorded: Recorded) -> None:
    report = knowledge_report(
        recorded.knowledge, DataFolder(), remedies=[("a/b#1",)], today=date(2026, 12, 1)
    )

    tables = {table.name: table for table in report.tables}
    newest = max(
        recorded.knowledge.sources[key].date
        for rule in recorded.knowledge.rules.values()
        for key in rule.sources
    )
    assert tables["rules"].entries == len(recorded.knowledge.rules)
    assert tables["rules"].newest_source == newest
    assert tables["rules"].age_days == (date(2026, 12, 1) - date.fromisoformat(newest)).days
    assert all(table.entries for table in report.tables)


def marked(prefix: Path, *files: str) -> Path:
    """Return an environment with these files."""
    for file in files:
        (prefix / file).parent.mkdir(parents=True, exist_ok=True)
        (prefix / file).touch()
    return prefix


UPGRADE = "install --upgrade rocsteady-knowledge"
IN_HOME = "home/u/.local/share"
CONDA = "conda-meta/history conda-meta/rocsteady-knowledge-2026.11.0-0.json"


@pytest.mark.parametrize(
    ("prefix", "files", "installer", "command"),
    [
        (f"{IN_HOME}/pipx/venvs/rocsteady", "pyvenv.cfg pipx_metadata.json", "pip",
         f"pipx runpip rocsteady {UPGRADE}"),
        (f"{IN_HOME}/uv/tools/rocsteady", "pyvenv.cfg uv-receipt.toml", "uv",
         "uv tool upgrade rocsteady"),
        ("opt/conda/envs/train", CONDA, "conda", "conda update --prefix {} rocsteady-knowledge"),
        ("opt/conda/envs/train", "conda-meta/history", "pip", f"{{}}/bin/python -m pip {UPGRADE}"),
        ("home/u/project/.venv", "pyvenv.cfg", "uv",
         "uv pip install --python {}/bin/python --upgrade rocsteady-knowledge"),
        ("home/u/my project/venv", "pyvenv.cfg", "pip", f'"{{}}/bin/python" -m pip {UPGRADE}'),
        ("usr", "", "", f"{{}}/bin/python -m pip {UPGRADE}"),
    ],
)  # fmt: skip
def test_the_upgrade_command_is_that_of_the_installer(
    tmp_path: Path, prefix: str, files: str, installer: str, command: str
) -> None:
    place = marked(tmp_path / prefix, *files.split())
    python = f"{place}/bin/python"

    found = upgrade_command("rocsteady-knowledge", prefix=place, python=python, installer=installer)

    assert found == command.format(place)


def test_a_tool_that_is_one_package_is_upgraded_by_its_name(tmp_path: Path) -> None:
    place = marked(tmp_path / "pipx/venvs/rocsteady", "pipx_metadata.json")

    command = upgrade_command("rocsteady", prefix=place, python="python", installer="pip")

    assert command == "pipx upgrade rocsteady"


@pytest.mark.parametrize(
    ("entry", "day", "old"),
    [
        ("wheels", date(2026, 12, 19), False),
        ("wheels", date(2026, 12, 20), True),
        ("rdna4-training-faults", date(2027, 2, 15), False),  # asks for a version
        ("rdna4-training-faults", date(2027, 2, 16), True),
        ("igpu-visible", date(2027, 11, 17), False),
        ("igpu-visible", date(2027, 11, 18), True),
    ],
)
def test_an_entry_is_out_of_date_sooner_the_faster_its_kind_changes(
    recorded: Recorded, entry: str, day: date, *, old: bool
) -> None:
    knowledge = recorded.knowledge
    it = knowledge.indexes[0] if entry == "wheels" else knowledge.rules[entry]

    assert is_out_of_date(it, knowledge.sources, day) is old


def test_without_a_day_of_its_own_an_entry_is_as_old_as_its_newest_source(
    recorded: Recorded,
) -> None:
    rule = msgspec.structs.replace(recorded.knowledge.rules["igpu-visible"], checked="")
    sources = recorded.knowledge.sources

    assert last_checked(rule, sources) == max(sources[key].date for key in rule.sources)
    assert is_out_of_date(msgspec.structs.replace(rule, sources=()), sources, date(2026, 11, 17))


def test_the_doctor_and_the_list_for_maintainers_name_what_is_out_of_date(
    recorded: Recorded,
) -> None:
    later = date(2028, 1, 1)

    state = knowledge_state(recorded.knowledge, today=later, fired=["igpu-visible", "bar-small"])
    report = knowledge_report(recorded.knowledge, DataFolder(), remedies=[], today=later)

    assert state.notes[-1] == "Out of date, so they may no longer hold: igpu-visible, bar-small."
    assert "rules: igpu-visible, last checked 2026-11-17" in report.out_of_date
    assert {it.name: it.out_of_date for it in report.tables}["rules"] == len(
        recorded.knowledge.rules
    )
