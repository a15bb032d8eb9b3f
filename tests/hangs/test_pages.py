"""A page is told as it was written; whatever else lies in the folder is passed over."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st
from rocsteady_train.inside import wire

from rocsteady.hangs.heartbeat_pages import (
    MAX_FILES,
    MAX_NAMES,
    numbered,
    read_notes,
    read_pages,
    read_saved,
)
from rocsteady.hangs.values import Heartbeat

WORDS = wire.SIZE // 8


def page(**changes: int) -> bytes:
    """Spell a page word by word, as the training process does."""
    words = [0] * WORDS
    told = {
        "W_MAGIC": wire.MAGIC,
        "W_VERSION": wire.VERSION,
        "W_PID": 42,
        "W_PHASE": wire.BACKWARD,
        "W_SINCE": 2_500_000_000,
    }
    for name, word in {**told, **changes}.items():
        words[getattr(wire, name)] = word
    return struct.pack(f"={WORDS}Q", *words)


def write(folder: Path, content: bytes, name: str = "42.page") -> None:
    (folder / name).write_bytes(content)


def test_a_whole_page(tmp_path: Path) -> None:
    words = bytearray(
        page(W_RANK=1, W_WORLD=2, W_THREAD=43, W_STEP=904, W_BEATS=1808, W_LAST_STEP=10**9,
             W_TOTAL=7500, W_TIME=3 * 10**9, W_LONGEST=10**9)
    )  # fmt: skip
    struct.pack_into("=Q", words, (wire.W_HISTOGRAM + wire.BUCKETS + 7) * 8, 5)
    write(tmp_path, bytes(words))

    zeros = dict.fromkeys(wire.PHASES, 0.0)
    empty = (0,) * wire.BUCKETS
    assert read_pages(tmp_path) == (
        Heartbeat(
            pid=42,
            rank=0,
            world=2,
            thread=43,
            step=904,
            beats=1808,
            phase="backward",
            since=2.5,
            last_step=1.0,
            ended=False,
            raised=False,
            total=7500,
            seconds_in={**zeros, "starting": 3.0},
            longest_in={**zeros, "starting": 1.0},
            histogram={
                **dict.fromkeys(wire.PHASES, empty),
                "data": (*empty[:7], 5, *empty[8:]),
            },
        ),
    )


def test_what_was_not_told_is_none(tmp_path: Path) -> None:
    write(tmp_path, page())
    (beat,) = read_pages(tmp_path)

    assert (beat.rank, beat.world, beat.last_step, beat.total) == (None, None, None, None)
    assert beat.thread == 42


def test_the_end_is_told_with_how(tmp_path: Path) -> None:
    write(tmp_path, page(W_END=wire.FINISHING))
    write(tmp_path, page(W_PID=43, W_END=wire.RAISED), "43.page")

    assert [(beat.ended, beat.raised) for beat in read_pages(tmp_path)] == [
        (True, False),
        (True, True),
    ]


def test_what_is_no_page_of_this_version_is_passed_over(tmp_path: Path) -> None:
    write(tmp_path, page())
    write(tmp_path, page(W_PID=1)[:100], "1.page")  # short
    write(tmp_path, b"", "2.page")
    write(tmp_path, page(W_PID=3, W_MAGIC=7), "3.page")
    write(tmp_path, page(W_PID=4, W_VERSION=wire.VERSION + 1), "4.page")
    write(tmp_path, page(W_PID=6), "5.page")  # another's number
    write(tmp_path, page(W_PID=7, W_PHASE=99), "7.page")
    write(tmp_path, page(W_PID=8), "eight.page")
    write(tmp_path, page(W_PID=9), "9.pagex")
    (tmp_path / "10.page").mkdir()
    (tmp_path / "11.page").symlink_to(tmp_path / "42.page")

    assert [beat.pid for beat in read_pages(tmp_path)] == [42]


def test_pages_of_living_and_known_processes_are_read_in_a_folder_full_of_others(
    tmp_path: Path,
) -> None:
    known, living = 4_300_000, os.getpid()
    for number in range(MAX_NAMES):
        (tmp_path / f"{number + 5_000_000}.page").touch()
    for number in (known, living):
        write(tmp_path, page(W_PID=number), f"{number}.page")
    for number in range(MAX_NAMES):
        (tmp_path / f"{number + 6_000_000}.page").touch()

    assert {beat.pid for beat in read_pages(tmp_path, [known])} == {known, living}
    assert len(numbered(tmp_path, ".page")) <= MAX_FILES


def test_no_folder_has_no_pages_and_no_notes(tmp_path: Path) -> None:
    assert read_pages(tmp_path / "gone") == ()
    assert read_notes(tmp_path / "gone") == {}


def test_notes_are_one_short_printable_line(tmp_path: Path) -> None:
    write(tmp_path, b"no page: \x1b[31mdisk full\nand more\n", "7.note")
    write(tmp_path, b"x" * 9000, "8.note")
    write(tmp_path, b"", "9.note")

    assert read_notes(tmp_path) == {7: "no page: [31mdisk full", 8: "x" * 500}


@given(st.dictionaries(st.integers(wire.W_MADE, WORDS - 1), st.integers(0, 2**64 - 1)))
def test_any_torn_page_is_a_value_or_nothing(torn: dict[int, int]) -> None:
    content = bytearray(page())
    for index, word in torn.items():
        struct.pack_into("=Q", content, index * 8, word)
    with TemporaryDirectory() as folder:
        write(Path(folder), bytes(content))
        assert len(read_pages(Path(folder))) == (torn.get(wire.W_PHASE, 0) < len(wire.PHASES))


def test_of_a_folder_that_was_removed_it_is_not_known_what_was_saved(tmp_path: Path) -> None:
    assert read_saved(tmp_path).seen
    assert not read_saved(tmp_path / "removed").seen
