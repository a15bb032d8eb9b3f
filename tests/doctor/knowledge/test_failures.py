"""Kinds and signatures as they are, and wrong ones refused by file, entry and field."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from rocsteady.doctor.knowledge.failures import (
    Component,
    FailureKnowledge,
    KnownMessage,
    Nature,
    Where,
    find_message,
    known_messages,
    load_failures,
    words_of,
)
from rocsteady.doctor.knowledge.reader import DataFolder
from rocsteady.errors import KnowledgeError
from rocsteady.failures.classify import Classifier
from rocsteady.failures.symptoms import Symptoms
from rocsteady.model import FailureKind

KIND = """
[[failure]]
id = "{id}"
title = "A title"
words = "Some words."
nature = "either"
component = "device"
sources = ["ROCm/ROCm#1"]
"""
SIGNATURE = """
[[signature]]
id = "ring"
failure = "some-kind"
where = "kernel"
literals = ["ring timeout"]
pattern = 'ring \\S+ timeout'
sample = "ring gfx timeout"
sources = ["ROCm/ROCm#1"]
"""
KINDS = "".join(KIND.format(id=id_) for id_ in ("some-kind", "unknown", "script-error"))


def load(
    folder: Path, kinds: str = KINDS, signatures: str = SIGNATURE
) -> tuple[FailureKnowledge, list[str]]:
    (folder / "signatures").mkdir()
    (folder / "failures.toml").write_text(kinds, encoding="utf-8")
    (folder / "signatures" / "some.toml").write_text(signatures, encoding="utf-8")
    data = DataFolder(folder)
    return load_failures(data), data.ignored


def test_a_good_folder_is_read(tmp_path: Path) -> None:
    known, ignored = load(tmp_path)

    assert ignored == []
    assert list(known.kinds) == ["some-kind", "unknown", "script-error"]
    assert known.kinds["some-kind"].nature is Nature.EITHER
    assert known.kinds["some-kind"].component is Component.DEVICE
    assert [(it.id, it.where, it.alone) for it in known.signatures] == [
        ("ring", Where.KERNEL, True)
    ]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('title = "A title"', 'title = ""', r"failures.toml: some-kind: .*\$\.title"),
        ('title = "A title"', 'title = "two\\nlines"', r"some-kind: .*\$\.title"),
        ('sources = ["ROCm/ROCm#1"]', "sources = []", r"some-kind: .*\$\.sources"),
        ('nature = "either"', 'nature = "perhaps"', "failures.toml: some-kind: .*nature"),
        ('component = "device"', 'component = "any"', "failures.toml: some-kind: .*component"),
        ('id = "some-kind"', 'id = "Some Kind"', r"\$\.id"),
    ],
)
def test_a_wrong_kind_is_ignored_with_its_signatures(
    tmp_path: Path, old: str, new: str, problem: str
) -> None:
    known, ignored = load(tmp_path, kinds=KINDS.replace(old, new, 1))

    assert list(known.kinds) == ["unknown", "script-error"]
    assert known.signatures == ()
    assert re.search(problem, ignored[0])
    assert len(ignored) == 2


@pytest.mark.parametrize("id_", ["other", "some-kind"])
def test_a_table_without_a_needed_kind_is_refused(tmp_path: Path, id_: str) -> None:
    with pytest.raises(KnowledgeError, match=r"failures\.toml: unknown: missing"):
        load(tmp_path, kinds=KINDS.replace('id = "unknown"', f'id = "{id_}"'))


def test_a_field_that_is_not_known_is_ignored_alone(tmp_path: Path) -> None:
    known, ignored = load(tmp_path, kinds=KINDS.replace("component", "colour = 1\ncomponent", 1))

    assert "some-kind" in known.kinds
    assert ignored == ["failures.toml: some-kind: colour: not known"]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('"some-kind"', '"no-such"', "some.toml: ring: failure: 'no-such' is not in failures.toml"),
        ("pattern = 'ring", "pattern = '(ring", "some.toml: ring: pattern: "),
        ('literals = ["ring timeout"]', "", "ring: literals: needed with a pattern"),
        ('literals = ["ring timeout"]', 'literals = ["!!"]', "ring: literals: '!!' has no word"),
        ('sample = "ring gfx timeout"', "", "ring: sample: empty"),
        ('sources = ["ROCm/ROCm#1"]', "sources = []", r"ring: .*\$\.sources"),
        ('where = "kernel"', 'where = "stars"', "some.toml: ring: .*where"),
        ('where = "kernel"', 'where = "exit"', "ring: signals: needed where it is looked for in"),
        ('id = "ring"', 'id = "Ring"', r"\$\.id"),
        ("sample", "colour", "some.toml: ring: .*colour"),
    ],
)
def test_a_wrong_signature_is_ignored_and_named(
    tmp_path: Path, old: str, new: str, problem: str
) -> None:
    known, ignored = load(tmp_path, signatures=SIGNATURE.replace(old, new))

    assert known.signatures == ()
    assert len(ignored) == 1
    assert re.search(problem, ignored[0])


def test_two_signatures_do_not_share_an_id(tmp_path: Path) -> None:
    known, ignored = load(tmp_path, signatures=SIGNATURE + SIGNATURE)

    assert len(known.signatures) == 1
    assert ignored == ["some.toml: ring: id: taken by another entry"]


def test_a_folder_without_signatures_is_refused(tmp_path: Path) -> None:
    (tmp_path / "failures.toml").write_text(KINDS, encoding="utf-8")

    with pytest.raises(KnowledgeError, match="signatures: No such file"):
        load_failures(DataFolder(tmp_path))


def test_words_have_no_digits_and_no_signs() -> None:
    assert words_of("GCVM_L2_FAULT: [mmhub0] no-retry") == {
        b"GCVM_L", b"_FAULT", b"mmhub", b"no", b"retry",
    }  # fmt: skip


def test_every_kind_that_needs_a_person_says_what_to_do() -> None:
    kinds = load_failures().kinds

    assert {
        "disk-full", "no-access-to-gpu", "broken-install", "script-error", "gpu-hardware-error",
        "pcie-error", "gpu-queue-failure",
    } <= {id_ for id_, kind in kinds.items() if kind.fix}  # fmt: skip
    assert not [id_ for id_, kind in kinds.items() if kind.fix and kind.advice]
    assert not [id_ for id_, kind in kinds.items() if kind.fix and not kind.fix.text.strip()]


def test_the_kinds_that_code_refers_to_are_known() -> None:
    named = {value for name, value in vars(FailureKind).items() if name.isupper()}

    assert named <= load_failures().kinds.keys()
    assert FailureKind.MACHINE_WENT_DOWN in named


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


def test_a_long_log_is_searched_for_messages_in_no_time() -> None:
    text, began = "step 1 of 100: loss 0.4, 17 steps/s\n" * 400_000, time.process_time()

    assert find_message(text) is None
    assert time.process_time() - began < 2.0  # line by line it took 7


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
