"""Each line has its time; redraws are kept, but not all; streams do not mix within a line."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocsteady.system.logfile import HELD_LIMIT, Lines, LogFile, LogRules, timestamp


def fed(*chunks: bytes, step: float = 0.0) -> bytes:
    """Feed chunks ``step`` seconds apart and give the log, with the second as its stamp."""
    lines, out, now = Lines(), b"", 100.0
    for chunk in chunks:
        out += lines.feed(chunk, b"%d " % now, now)
        now += step
    return out + lines.finish(b"%d " % now, now)


def test_a_moment_is_spelt_in_utc_with_milliseconds() -> None:
    assert timestamp(1794704523.4567) == b"2026-11-15T01:02:03.456Z "


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


@pytest.mark.parametrize(
    ("chunks", "step", "log"),
    [
        pytest.param([b"one\n", b"tw", b"o\nthree"], 1, b"100 one\n101 two\n102 three\n",
                     id="a line bears the time at which it began"),
        pytest.param([b"\r 1%", b"\r 2%", b"\r 3%\n"], 1, b"100  1%\n101  2%\n102  3%\n",
                     id="redraws a second apart are all kept"),
        pytest.param([b"\r 1%", b"\r 2%", b"\r 3%", b"\r 4%\nend\n"], 0,
                     b"100  1%\n100  4%\n100 end\n", id="within a second the first and the last"),
        pytest.param([b" 1%\r", b" 2%\r", b" 3%\r", b"\n"], 0.1, b"100  1%\n100  2%\n100  3%\n",
                     id="a bar that ends with its return"),
        pytest.param([b"\r 1%", b"\r 2", b"% done\n"], 0, b"100  1%\n100  2% done\n",
                     id="a redraw in two chunks stays one"),
    ],
)  # fmt: skip
def test_times_and_redraws(chunks: list[bytes], step: float, log: bytes) -> None:
    assert fed(*chunks, step=step) == log


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


def long_log(path: Path, lines: int, rules: LogRules) -> tuple[list[str], int]:
    """Print numbered lines, and return what is kept with the most that the file ever had."""
    log, stream, most = LogFile(path, rules), Lines(), 0
    for number in range(lines):
        end = "out of memory" if number == lines // 2 else "x" * 50
        log.add(stream, b"line %d %s\n" % (number, end.encode()))
        if number % 1000 == 0:
            log._output_buffer.flush(5)
            most = max(most, path.stat().st_size)
    log.finish(stream)
    log.close(5)
    return path.read_text().splitlines(), max(most, path.stat().st_size)


def test_a_long_log_keeps_its_head_its_tail_and_what_the_job_looks_for(tmp_path: Path) -> None:
    rules = LogRules(limit=1_000_000, keep=("out of memory", "not there"))

    lines, most = long_log(tmp_path / "log", 100_000, rules)  # about 9 MB

    assert most < 1_100_000
    note = next(number for number, line in enumerate(lines) if line.startswith("rocsteady: "))
    head, tail = lines[:note], lines[note + 2 :]
    assert "out of memory" in lines[note + 1]
    assert [line.split()[2] for line in head] == [str(number) for number in range(len(head))]
    numbers = [int(line.split()[2]) for line in tail]
    assert numbers == list(range(numbers[0], 100_000))
    assert sum(map(len, head)) > 200_000
    assert sum(map(len, tail)) > 200_000
    left_out = int(lines[note].split()[1])
    assert left_out + (tmp_path / "log").stat().st_size > 8_000_000
    assert lines[note].endswith("limited to 1 MB (log_limit in rocsteady.toml)")


def test_a_log_below_its_limit_is_kept_as_it_is(tmp_path: Path) -> None:
    lines, _ = long_log(tmp_path / "log", 2_000, LogRules(limit=1_000_000))

    assert len(lines) == 2_000


def test_one_line_without_an_end_is_limited_too(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log, stream = LogFile(path, LogRules(limit=1_000_000)), Lines()
    for _ in range(5_000):
        log.add(stream, b"x" * 1000)
    log.finish(stream)
    log.close(5)

    assert path.stat().st_size < 1_100_000
    assert b"bytes are left out here" in path.read_bytes()


def test_what_an_earlier_supervisor_wrote_stays(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"earlier\n" * 1000)

    lines, _ = long_log(path, 50_000, LogRules(limit=1_000_000))

    assert lines[:1000] == ["earlier"] * 1000
    assert lines[-1].split()[2] == "49999"
