"""What came of a strategy, and the facts of loaders, put together from several processes."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rocsteady_train.inside import wire

from rocsteady.hangs.heartbeat_pages import (
    Applied,
    SettingOutcome,
    Size,
    read_applied,
    read_loader_facts,
    read_size,
)
from rocsteady.model import LoaderFacts

WORDS = wire.SIZE // 8


def tell(folder: Path, pid: int, *told: tuple[str, str], asked: str = "workers") -> None:
    """Leave what a process leaves."""
    content = {
        "version": wire.APPLIED_VERSION,
        "asked": asked.split(),
        "told": [
            {"setting": setting, "outcome": outcome, "why": "so"} for setting, outcome in told
        ],
    }
    (folder / f"{pid}.applied").write_text(json.dumps(content), encoding="utf-8")


def page(folder: Path, pid: int, **words: int) -> None:
    """Leave a page with facts of loaders."""
    content = [0] * WORDS
    content[wire.W_MAGIC], content[wire.W_VERSION], content[wire.W_PID] = (
        wire.MAGIC,
        wire.VERSION,
        pid,
    )
    for name, word in words.items():
        content[getattr(wire, name)] = word
    (folder / f"{pid}.page").write_bytes(struct.pack(f"={WORDS}Q", *content))


def test_each_outcome_of_each_process_is_told(tmp_path: Path) -> None:
    tell(tmp_path, 7, ("workers", "applied"), ("workers", "refused"))

    assert read_applied(tmp_path) == (
        Applied(pid=7, setting="workers", outcome=SettingOutcome.APPLIED, why="so"),
        Applied(pid=7, setting="workers", outcome=SettingOutcome.REFUSED, why="so"),
    )


def test_what_was_asked_for_and_never_done_had_no_effect(tmp_path: Path) -> None:
    tell(tmp_path, 7, ("workers", "applied"), asked="workers precision")

    assert [(one.setting, one.outcome.value) for one in read_applied(tmp_path)] == [
        ("precision", "no effect"),
        ("workers", "applied"),
    ]


def test_a_launcher_without_loaders_does_not_speak_against_its_ranks(tmp_path: Path) -> None:
    tell(tmp_path, 1)
    tell(tmp_path, 2, ("workers", "applied"))

    assert [(one.pid, one.outcome.value) for one in read_applied(tmp_path)] == [(2, "applied")]


def test_what_is_not_ours_is_passed_over(tmp_path: Path) -> None:
    tell(tmp_path, 7)
    (tmp_path / "8.applied").write_text('{"version": 1')
    (tmp_path / "9.applied").write_text('{"version": 2, "asked": ["workers"], "told": []}')
    (tmp_path / "10.applied").write_bytes(b"\xff")
    (tmp_path / "11.applied").mkdir()

    assert [one.pid for one in read_applied(tmp_path)] == [7]


def test_no_folder_and_no_loader_tell_nothing(tmp_path: Path) -> None:
    page(tmp_path, 7)

    assert read_applied(tmp_path / "gone") == ()
    assert read_loader_facts(tmp_path / "gone") is None
    assert read_loader_facts(tmp_path) is None


def test_facts_of_one_process(tmp_path: Path) -> None:
    page(tmp_path, 7, W_LOADERS=2, W_WORKERS=4, W_CONTEXT=1, W_GUARDED=1)

    assert read_loader_facts(tmp_path) == LoaderFacts(
        loaders=2,
        workers=4,
        context="fork",
        pickles=None,
        main_guarded=False,
    )


@pytest.mark.parametrize(
    ("field", "told", "together"),
    [
        ("pickles", (wire.YES, wire.NO), False),
        ("pickles", (wire.NOT_TOLD, wire.YES), True),
        ("main_guarded", (wire.YES, wire.NO), False),
        ("persistent", (wire.NOT_TOLD, wire.YES), True),
        ("persistent", (wire.NOT_TOLD, wire.NOT_TOLD), False),
    ],
)
def test_of_several_processes_the_worse_answer_counts(
    tmp_path: Path, field: str, told: tuple[int, int], together: object
) -> None:
    word = {"main_guarded": "W_GUARDED"}.get(field, f"W_{field.upper()}")
    page(tmp_path, 7, W_LOADERS=1, **{word: told[0]})
    page(tmp_path, 8, W_LOADERS=1, W_WORKERS=2, **{word: told[1]})

    facts = read_loader_facts(tmp_path)

    assert facts is not None
    assert (getattr(facts, field), facts.workers) == (together, 2)


def test_the_size_is_the_largest_of_each_over_those_that_made_a_step(tmp_path: Path) -> None:
    page(tmp_path, 7, W_PARAMETERS=100, W_LOADER_BATCH=8, W_LOADER_BATCHES=40)
    page(tmp_path, 8, W_PARAMETERS=700, W_LOADER_BATCH=8)
    page(tmp_path, 9, W_LOADER_BATCHES=9000, W_BATCH=64)

    assert read_size(tmp_path) == Size(parameters=700, batch=8, batches=40)


def test_without_a_step_there_is_no_size(tmp_path: Path) -> None:
    page(tmp_path, 7, W_LOADERS=1, W_BATCH=64)

    assert read_size(tmp_path) is None
    assert read_size(tmp_path / "gone") is None


@given(st.dictionaries(st.integers(wire.W_LOADERS, WORDS - 1), st.integers(0, 2**64 - 1)))
def test_any_torn_page_gives_facts_or_none(torn: dict[int, int]) -> None:
    with TemporaryDirectory() as folder:
        page(Path(folder), 7)
        words = bytearray((Path(folder) / "7.page").read_bytes())
        for word, value in torn.items():
            struct.pack_into("=Q", words, word * 8, value)
        (Path(folder) / "7.page").write_bytes(words)

        facts = read_loader_facts(Path(folder))

    assert facts is None or facts.context in wire.CONTEXTS


def test_facts_of_loaders_are_behind_all_that_phases_take() -> None:
    assert wire.W_HISTOGRAM + wire.BUCKETS * len(wire.PHASES) <= wire.W_LOADERS
