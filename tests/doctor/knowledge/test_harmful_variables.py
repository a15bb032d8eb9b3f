"""The harmful variables: what the file has, when one harms, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rocsteady.doctor.knowledge.failures import load_failures
from rocsteady.doctor.knowledge.harmful_variables import Harmful, harmful_variables
from rocsteady.doctor.knowledge.reader import DataFolder
from rocsteady.errors import KnowledgeError

if TYPE_CHECKING:
    from rocsteady.doctor.knowledge.reader import Knowledge

ENTRY = '[[variable]]\nname = "A"\nfailures = ["hang"]\nwhy = "It waits."\nsources = ["a/b#1"]\n'


def test_every_variable_is_a_known_one_and_every_failure_too(knowledge: Knowledge) -> None:
    kinds = load_failures().kinds

    for each in harmful_variables():
        assert each.name in knowledge.variables
        assert not each.beside or each.beside in knowledge.variables
        assert set(each.failures) <= set(kinds), each.name


def test_no_entry_is_there_twice() -> None:
    keys = [(each.name, each.containing, each.beside) for each in harmful_variables()]

    assert len(keys) == len(set(keys))


def test_what_may_hide_another_persons_gpu_is_never_taken_away() -> None:
    assert [each for each in harmful_variables() if each.name == "ROCR_VISIBLE_DEVICES"] == []


@pytest.mark.parametrize(
    ("variables", "harms"),
    [
        ({}, False),
        ({"A": "on,x:True"}, True),
        ({"A": "x:True", "B": ""}, True),
        ({"A": "off,x:True"}, False),
        ({"A": "on"}, False),
        ({"B": "x:True"}, False),
    ],
)
def test_it_harms_by_its_value(variables: dict[str, str], *, harms: bool) -> None:
    entry = Harmful(
        name="A",
        failures=("hang",),
        why="It waits.",
        sources=("a/b#1",),
        harmless=("off,x:True",),
        containing="x:True",
    )

    assert entry.harms(variables) is harms


def test_it_may_harm_only_beside_another() -> None:
    entry = Harmful(name="A", failures=("hang",), why="Both.", sources=("a/b#1",), beside="B")

    assert not entry.harms({"A": "1"})
    assert entry.harms({"A": "1", "B": ""})


def read(folder: Path, text: str) -> tuple[tuple[Harmful, ...], list[str]]:
    (folder / "harmful_variables.toml").write_text(text)
    data = DataFolder(folder)
    return harmful_variables(data), data.ignored


def test_a_file_is_read(tmp_path: Path) -> None:
    assert read(tmp_path, ENTRY) == (
        (Harmful(name="A", failures=("hang",), why="It waits.", sources=("a/b#1",)),),
        [],
    )


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (ENTRY.replace('["a/b#1"]', "[]"), ("harmful_variables.toml", "A", "sources")),
        (ENTRY.replace('["hang"]', "[]"), ("harmful_variables.toml", "A", "failures")),
        (ENTRY.replace('"It waits."', '""'), ("harmful_variables.toml", "A", "why")),
        (ENTRY + "unless = []\n", ("harmful_variables.toml", "unless")),
        (ENTRY.replace("[[variable]]", "[[variables]]"), ("harmful_variables.toml", "variables")),
    ],
)
def test_what_is_not_understood_is_ignored_by_file_entry_and_field(
    tmp_path: Path, text: str, names: tuple[str, ...]
) -> None:
    found, [ignored] = read(tmp_path, text)

    assert found == ()
    assert all(name in ignored for name in names), ignored


def test_a_file_that_cannot_be_read_is_an_error_of_ours(tmp_path: Path) -> None:
    with pytest.raises(KnowledgeError, match=r"harmful_variables\.toml"):
        harmful_variables(DataFolder(tmp_path))
    with pytest.raises(KnowledgeError, match=r"harmful_variables\.toml"):
        read(tmp_path, "[[variable]\n")
