"""What a command prints arrives as without us, whoever reads it, and the log has all of it."""

from __future__ import annotations

import os
import random
import resource
import sys
import time
from pathlib import Path

import pytest
from host_children import Children, Reader, missed

from rocsteady.system.child import Child
from rocsteady.system.child_end import Exit, TerminalUse


def to_pipes(after: float = 0.0) -> tuple[TerminalUse, Reader, Reader]:
    """Give what stands for our stdout and stderr, and the readers of both."""
    out, our_out = os.pipe()
    err, our_err = os.pipe()
    use = TerminalUse(stdin=None, stdout=our_out, stderr=our_err)
    return use, Reader(out, after=after), Reader(err)


def end(child: Child, use: TerminalUse) -> Exit | None:
    """Wait for the command, close everything, and end our own streams, so that readers end."""
    outcome: Exit | None = child.wait(60)
    child.close()
    for stream in {use.stdin, use.stdout, use.stderr} - {None}:
        assert stream is not None
        os.close(stream)
    return outcome


def test_a_megabyte_of_random_bytes_is_the_same_through_us(children: Children) -> None:
    use, out, err = to_pipes()

    child = children.victim("host_prints", "random", "1000000", use=use)

    assert end(child, use) == Exit(code=0)
    assert out.all() == random.Random(7).randbytes(1_000_000)  # noqa: S311 - the victim's own
    assert err.all() == b""


def test_stdout_and_stderr_stay_apart_and_are_no_terminals(children: Children) -> None:
    use, out, err = to_pipes()

    end(children.victim("host_prints", "streams", use=use), use)

    assert out.all() == b"out [False, False, False]\n"
    assert err.all() == b"err False\n"


def test_one_pipe_for_both_stays_one_pipe(children: Children) -> None:
    out, ours = os.pipe()
    use = TerminalUse(stdin=None, stdout=ours, stderr=ours)
    both = Reader(out)

    end(children.victim("host_prints", "streams", use=use), use)

    assert both.all() == b"out [False, False, False]\nerr True\n"


def test_our_stdin_is_handed_through(children: Children, tmp_path: Path) -> None:
    (tmp_path / "input").write_bytes(b"typed\n")
    use, out, _ = to_pipes()
    use = TerminalUse(
        stdin=os.open(tmp_path / "input", os.O_RDONLY), stdout=use.stdout, stderr=use.stderr
    )

    end(children.start("cat", use=use), use)

    assert out.all() == b"typed\n"


def test_the_log_has_a_time_on_every_line_and_misses_none(children: Children) -> None:
    child = children.victim("host_prints", "lines", "20000")

    child.wait(60)
    child.close()

    lines = children.log.read_text().splitlines()
    assert len(lines) == 20_000
    assert [line[25:36] for line in lines[:2]] == ["line 000000", "line 000001"]
    assert all(line[10] == "T" and line[23:25] == "Z " for line in lines)
    assert children.log.stat().st_mode & 0o777 == 0o600


def test_a_progress_bar_reaches_the_reader_whole_and_the_log_thinned(children: Children) -> None:
    use, _, err = to_pipes()

    end(children.victim("host_prints", "bars", use=use), use)

    assert err.all().count(b"\r") == 101
    kept = children.logged().splitlines()
    assert kept[-2:] == ["100%|##########| 100/100", "done"]
    assert len(kept) < 20


def test_everyone_who_counts_gets_every_byte_even_if_it_fails(children: Children) -> None:
    counted = []

    def count(chunk: bytes) -> None:
        counted.append(len(chunk))
        raise RuntimeError("a bug of who counts")

    child = children.start("sh", "-c", "echo one; echo two", on_output=count)
    child.wait(20)
    child.close()

    assert sum(counted) == 8


def test_a_dead_reader_stops_nobody_and_is_told(children: Children) -> None:
    use, _, err = to_pipes()
    out, ours = os.pipe()
    os.close(out)
    os.close(use.stdout or 0)
    use = TerminalUse(stdin=None, stdout=ours, stderr=use.stderr)

    child = children.victim("host_prints", "lines", "10000", use=use)
    assert end(child, use) == Exit(code=0)

    size = 62 * 10_000
    assert missed(child) == size
    assert (
        err.all() == b"rocsteady: %d bytes were not shown; the log has what fits into it\n" % size
    )
    assert len(children.logged().splitlines()) == 10_000


def test_a_reader_that_stops_holds_nobody_up(children: Children) -> None:
    use, out, err = to_pipes(after=5.0)
    began = time.monotonic()

    child = children.victim("host_prints", "lines", "820000", use=use)  # 50 MB
    outcome = child.wait(60)
    took = time.monotonic() - began
    time.sleep(max(0.0, 5.0 - took))  # until it reads again
    end(child, use)

    assert outcome == Exit(code=0)
    assert took < 4.0
    shown = out.all()
    assert 8_000_000 < len(shown) < 50_840_000
    assert len(shown) + missed(child) == 50_840_000
    assert b"bytes were not shown; the log has what fits into it" in err.all()
    assert children.log.stat().st_size == 820_000 * (62 + 25)
    assert child._log._output_buffer.missed == 0


def test_a_slow_reader_that_moves_loses_nothing_of_a_burst(children: Children) -> None:
    use, out, _ = to_pipes(after=0.05)

    child = children.victim("host_prints", "lines", "200000", use=use)  # 12 MB, more than waits
    end(child, use)

    assert missed(child) + len(out.all()) == 12_400_000


def test_a_log_that_cannot_be_opened_is_the_callers_to_handle(
    children: Children, tmp_path: Path
) -> None:
    children.log = tmp_path / "nowhere" / "log"

    with pytest.raises(FileNotFoundError):
        children.start("true")


def test_a_full_disk_does_not_stop_the_command(children: Children) -> None:
    children.log = Path("/dev/full")

    child = children.victim("host_prints", "lines", "1000")

    assert child.wait(20) == Exit(code=0)
    child.close()
    assert child._log._output_buffer.missed > 0


@pytest.mark.slow
def test_memory_is_bounded_with_a_log_of_190_mb(children: Children) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    child = children.victim("host_prints", "lines", "2200000")

    assert child.wait(120) == Exit(code=0)
    child.close()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 40 * 1024, f"{grown} KiB"
    assert children.log.stat().st_size == 2_200_000 * (62 + 25)
    assert sys.platform == "linux"  # where ru_maxrss is in KiB
