"""Lines that are no failure by themselves: each is found, sourced, and not named a failure."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocsteady.doctor.knowledge.failures import (
    KnownMessage,
    find_message,
    known_messages,
    load_failures,
)
from rocsteady.doctor.knowledge.reader import DataFolder
from rocsteady.errors import KnowledgeError
from rocsteady.failures.classify import Classifier
from rocsteady.failures.symptoms import Symptoms
from rocsteady.model import FailureKind

each_message = pytest.mark.parametrize("message", known_messages(), ids=lambda it: it.id)


@each_message
def test_a_message_is_found_and_says_what_to_do(message: KnownMessage) -> None:
    found = find_message(f"step 1\n  {message.sample}  \nstep 2\n")

    assert found == (message, message.sample)
    assert message.sources
    assert message.fix.text.endswith(".")
    assert message.fix.commands
    assert message.fix.verify


@each_message
def test_a_run_is_not_judged_by_it(message: KnownMessage) -> None:
    named = Classifier(load_failures()).name(Symptoms(log=message.sample))

    assert named.kind == FailureKind.UNKNOWN


def test_ids_and_titles_are_those_of_one_message() -> None:
    known = known_messages()

    assert len({message.id for message in known}) == len({it.title for it in known}) == len(known)


def test_ordinary_output_has_none() -> None:
    assert find_message("Epoch 1: 34%| 2574/7500 [17:52<34:12]\nloss 0.4\n") is None


def test_a_broken_file_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "messages.toml").write_text("message = = 1\n")

    with pytest.raises(KnowledgeError, match=r"messages\.toml: "):
        known_messages(DataFolder(tmp_path))


def test_an_entry_that_is_not_understood_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "messages.toml").write_text("[[message]]\nid = 'a'\n")
    data = DataFolder(tmp_path)

    assert known_messages(data) == ()
    assert len(data.ignored) == 1


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(KnowledgeError, match=r"messages\.toml: No such file"):
        known_messages(DataFolder(tmp_path))
