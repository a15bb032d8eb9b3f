"""Every remedy says all that a person wants to know of it; a wrong entry is ignored."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocsteady.doctor.knowledge.failures import load_failures
from rocsteady.doctor.knowledge.reader import DataFolder
from rocsteady.errors import KnowledgeError
from rocsteady.failures.computed import COMPUTED
from rocsteady.failures.remedy import ANY, load_remedies

REMEDIES = [*load_remedies().values()]
ENTRY = """
[[remedy]]
id = "dummy"
title = "A dummy"
answers = ["oom-host"]
cost = "nothing"
evidence = "none"
when_not = "Never."
sources = ["field note A"]
"""


RETRY = ENTRY.replace("dummy", "retry")


def with_entries(folder: Path, text: str) -> DataFolder:
    (folder / "remedies.toml").write_text(f"{RETRY}{text}\n", encoding="utf-8")
    return DataFolder(folder)


def test_a_remedy_is_one_entry_of_one_file(tmp_path: Path) -> None:
    data = with_entries(tmp_path, f'{ENTRY}set = {{ DUMMY = "1" }}')

    assert load_remedies(data)["dummy"].set == {"DUMMY": "1"}
    assert data.ignored == []


def test_a_file_without_the_plain_retry_is_refused(tmp_path: Path) -> None:
    (tmp_path / "remedies.toml").write_text(f'{ENTRY}set = {{ A = "1" }}\n', encoding="utf-8")

    with pytest.raises(KnowledgeError, match="retry: missing"):
        load_remedies(DataFolder(tmp_path))


@pytest.mark.parametrize(
    ("more", "wrong"),
    [
        ("", "dummy: set: exactly one of"),
        ('set = { A = "1" }\nsetting = { compile = false }', "dummy: set: exactly one of"),
        ("setting = { compil = false }", "dummy: setting: 'compil' is not a field"),
        ('setting = { workers = "two" }', "dummy: setting: "),
        ('set = { A = "1" }\nneeds = "cuda"', "dummy: needs: one of gpu, rocm, rocr"),
        (
            'set = { A = "1" }\nwhen = [{ fact = "gpu.gfxx", is = "x", otherwise = "no" }]',
            "dummy: when.fact: 'gpu.gfxx' is not a fact",
        ),
        (
            'set = { A = "1" }\nwhen = [{ check = "gpu", otherwise = "no {gpu.gfxx}" }]',
            "dummy: when.otherwise: 'gpu.gfxx' is not a fact",
        ),
        ('set = { A = "1" }\nwhen = [{ check = "gpu" }]', "otherwise"),
        (f'set = {{ A = "1" }}{ENTRY}set = {{ A = "1" }}', "dummy: id: taken"),
    ],
)
def test_a_wrong_entry_is_ignored_and_named(tmp_path: Path, more: str, wrong: str) -> None:
    data = with_entries(tmp_path, f"{ENTRY}{more}")

    load_remedies(data)

    assert len(data.ignored) == 1
    assert wrong in data.ignored[0]


def test_the_same_again_comes_first_and_the_cpu_last() -> None:
    assert (REMEDIES[0].id, REMEDIES[-1].id) == ("retry", "cpu")


def test_every_function_has_an_entry() -> None:
    assert COMPUTED.keys() <= load_remedies().keys()


@pytest.mark.parametrize("remedy", REMEDIES, ids=lambda remedy: str(remedy.id))
def test_a_remedy_says_what_it_costs_what_it_rests_on_and_when_not_to_use_it(
    remedy: object,
) -> None:
    for field in ("title", "cost", "evidence", "when_not"):
        text = getattr(remedy, field)
        assert text.strip(), field
        assert text.isascii(), field
        assert not set(text) & set("\n!"), field
    assert all(source.strip() for source in getattr(remedy, "sources", ()))
    assert getattr(remedy, "sources", ())


def test_a_remedy_answers_only_kinds_that_exist() -> None:
    kinds = {ANY, *load_failures().kinds}

    unknown = {
        (remedy.id, kind) for remedy in REMEDIES for kind in remedy.answers if kind not in kinds
    }

    assert unknown == set()


def test_nothing_claims_to_be_confirmed_on_hardware() -> None:
    assert [remedy.id for remedy in REMEDIES if remedy.confirmed_on] == []
