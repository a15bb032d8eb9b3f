"""Where a script goes on from, and how it trains a batch, as its process told it."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

import pytest
from rocsteady_train.inside import wire

from rocsteady.hangs.heartbeat_pages import (
    Resumes,
    read_batch_split,
    read_pages,
    read_resumes,
)
from rocsteady.model import BatchSplit

TOLD = {"version": wire.RESUMES_VERSION, "folder": "/job/checkpoints", "pattern": "step-*"}
PLACE = Resumes(folder="/job/checkpoints", pattern="step-*")


def tell(pages: Path, pid: int, **changes: object) -> None:
    content = json.dumps({**TOLD, **changes})
    (pages / f"{pid}{wire.RESUMES_SUFFIX}").write_text(content)


def page(folder: Path, pid: int, **told: int) -> None:
    words = [0] * (wire.SIZE // 8)
    always = {"W_MAGIC": wire.MAGIC, "W_VERSION": wire.VERSION, "W_PID": pid}
    for name, word in {**always, **told}.items():
        words[getattr(wire, name)] = word
    (folder / f"{pid}{wire.SUFFIX}").write_bytes(struct.pack(f"={len(words)}Q", *words))


def test_each_place_is_told_once(tmp_path: Path) -> None:
    tell(tmp_path, 7)
    tell(tmp_path, 8)
    tell(tmp_path, 9, pattern="checkpoint-*")

    other = Resumes(folder="/job/checkpoints", pattern="checkpoint-*")
    assert read_resumes(tmp_path) == (PLACE, other)


def test_without_a_word_nothing_is_known(tmp_path: Path) -> None:
    assert read_resumes(tmp_path) == ()
    assert read_resumes(tmp_path / "gone") == ()


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 2},
        {"folder": "checkpoints"},
        {"folder": "/job/../etc"},
        {"folder": "/job\0"},
        {"folder": 3},
        {"folder": "/" + "x" * (1 << 20)},
        {"pattern": ""},
        {"pattern": "*/step-*"},
        {"pattern": "../*"},
        {"pattern": ".."},
        {"pattern": "-o"},
        {"pattern": "x" * 1000},
        {"pattern": ["step-*"]},
    ],
    ids=lambda changes: str(changes)[:40],
)
def test_what_is_no_place_is_passed_over(tmp_path: Path, changes: dict[str, object]) -> None:
    tell(tmp_path, 7, **changes)
    tell(tmp_path, 8)

    assert read_resumes(tmp_path) == (PLACE,)


@pytest.mark.skipif(os.name == "nt", reason="a link needs a right there")
def test_links_and_what_is_no_json_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "told").write_text(json.dumps(TOLD))
    (tmp_path / f"1{wire.RESUMES_SUFFIX}").symlink_to(tmp_path / "told")
    (tmp_path / f"2{wire.RESUMES_SUFFIX}").write_bytes(b"\xff{")
    (tmp_path / f"3{wire.RESUMES_SUFFIX}").mkdir()
    (tmp_path / f"x{wire.RESUMES_SUFFIX}").write_text(json.dumps(TOLD))

    assert read_resumes(tmp_path) == ()


def test_the_step_that_a_process_went_on_from(tmp_path: Path) -> None:
    page(tmp_path, 7, W_BASE=1200, W_STEP=5)

    assert [(beat.base, beat.step) for beat in read_pages(tmp_path)] == [(1200, 5)]


def test_how_a_batch_is_trained(tmp_path: Path) -> None:
    page(tmp_path, 6)
    assert read_batch_split(tmp_path) is None

    page(tmp_path, 7, W_BATCH=32)  # its loss has no declared reduction
    assert read_batch_split(tmp_path) == BatchSplit(batch=32, micro_batch=0)

    page(tmp_path, 7, W_BATCH=32, W_MICRO_BATCH=8)
    page(tmp_path, 8, W_BATCH=16, W_MICRO_BATCH=16)
    assert read_batch_split(tmp_path) == BatchSplit(batch=32, micro_batch=8)
