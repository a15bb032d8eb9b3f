"""Each line has its time; redraws are kept, but not all; streams do not mix within a line."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocsteady.host.logfile import HELD_LIMIT, Lines, LogFile, Stamp


def fed(*chunks: bytes, step: float = 0.0) -> bytes:
    """Feed chunks ``step`` seconds apart and give the log, with the second as its stamp."""
    lines, out, now = Lines(), b"", 100.0
    for chunk in chunks:
        out += lines.feed(chunk, b"%d " % now, now)
        now += step
    return out + lines.finish(b"%d " % now, now)


def test_a_moment_is_spelt_in_utc_with_milliseconds() -> None:
    assert Stamp().at(1794704523.4567) == b"2026-11-15T01:02:03.456Z "


@pytest.mark.parametrize(
    ("chunks", "log"),
    [
        ([b"one\ntwo\n"], b"100 one\n100 two\n"),
        ([b"on", b"e\n"], b"100 one\n"),
        ([b"\n\n"], b"100 \n100 \n"),
        ([b"no end"], b"100 no end\n"),
        ([b"dos\r\nlines\r\n"], b"100 dos\n100 lines\n"),
        ([b"dos\r", b"\nlines\r\n"], b"100 dos\n100 lines\n"),
        ([b""], b""),
        ([b"\0\xff\n"], b"100 \0\xff\n"),
    ],
)
def test_lines(chunks: list[bytes], log: bytes) -> None:
    assert fed(*chunks) == log


def test_a_line_bears_the_time_at_which_it_began() -> None:
    assert fed(b"one\n", b"tw", b"o\nthree", step=1) == b"100 one\n101 two\n102 three\n"


def test_redraws_a_second_apart_are_all_kept() -> None:
    assert fed(b"\r 1%", b"\r 2%", b"\r 3%\n", step=1) == b"100  1%\n101  2%\n102  3%\n"


def test_of_redraws_within_a_second_the_first_and_the_last_are_kept() -> None:
    assert fed(b"\r 1%", b"\r 2%", b"\r 3%", b"\r 4%\nend\n") == b"100  1%\n100  4%\n100 end\n"


def test_a_bar_that_ends_with_its_return_is_kept_too() -> None:
    assert fed(b" 1%\r", b" 2%\r", b" 3%\r", b"\n", step=0.1) == b"100  1%\n100  2%\n100  3%\n"


def test_a_redraw_in_two_chunks_stays_one() -> None:
    assert fed(b"\r 1%", b"\r 2", b"% done\n") == b"100  1%\n100  2% done\n"


def test_a_redraw_that_was_held_back_comes_with_the_clock() -> None:
    lines = Lines()
    lines.feed(b"\r 1%", b"100 ", 100.0)

    assert lines.feed(b"\r 2%", b"100 ", 100.2) == b""
    assert lines.tick(b"100 ", 100.5) == b""
    assert lines.tick(b"101 ", 101.3) == b"\n101  2%"


def test_what_is_held_back_is_bounded() -> None:
    lines = Lines()
    lines.feed(b"\r 1%", b"100 ", 100.0)

    out = lines.feed(b"\r" + b"x" * (HELD_LIMIT + 1), b"100 ", 100.1)

    assert out == b"\n100 " + b"x" * (HELD_LIMIT + 1)


def test_streams_do_not_share_a_line(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "log")
    out, err = Lines(), Lines()
    log.add(out, b"half ")
    log.add(err, b"warning\n")
    log.add(out, b"other half\n")
    for lines in (out, err):
        log.finish(lines)
    log.close(1)

    written = (tmp_path / "log").read_text().splitlines()
    assert [line[25:] for line in written] == ["half ", "warning", "other half"]


def test_a_log_is_added_to_and_never_written_over(tmp_path: Path) -> None:
    for text in (b"first\n", b"second\n"):
        log, lines = LogFile(tmp_path / "log"), Lines()
        log.add(lines, text)
        log.close(1)

    lines_there = (tmp_path / "log").read_text().splitlines()
    assert [line[25:] for line in lines_there] == ["first", "second"]


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "log").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(OSError, match="symbolic"):
        LogFile(tmp_path / "log")
