"""Whoever sends is not held up; what is left out is counted, and said where it is missing."""

from __future__ import annotations

import os
import pty
import time
import tty

import pytest

from rocsteady.system.bounded_output import OutputBuffer


def notice(count: int) -> bytes:
    return b"[%d left out]" % count


def read_all(descriptor: int) -> bytes:
    found = b""
    while chunk := os.read(descriptor, 65536):
        found += chunk
    os.close(descriptor)
    return found


def test_everything_is_written_in_order() -> None:
    read, write = os.pipe()
    output_buffer = OutputBuffer(write)
    for number in range(1000):
        output_buffer.put(b"%d " % number)

    assert output_buffer.close(5)
    os.close(write)

    assert read_all(read) == b"".join(b"%d " % number for number in range(1000))
    assert output_buffer.missed == 0


def test_a_stuck_reader_costs_little_time_and_is_told_when_it_reads_again() -> None:
    read, write = os.pipe()  # takes 64 KiB
    output_buffer = OutputBuffer(write, notice=notice, limit=100_000)
    began = time.monotonic()
    for _ in range(50):
        output_buffer.put(b"x" * 10_000)
    took = time.monotonic() - began
    missed = output_buffer.missed

    shown = b""
    while b"left out]" not in shown:
        shown += os.read(read, 65536)
    output_buffer.put(b"again")

    assert output_buffer.close(5)
    os.close(write)
    shown += read_all(read)

    assert took < 1
    assert missed > 0
    assert shown == b"x" * (500_000 - missed) + notice(missed) + b"again"
    assert output_buffer.untold == 0


def test_a_reader_that_is_gone_is_counted() -> None:
    read, write = os.pipe()
    os.close(read)
    output_buffer = OutputBuffer(write, notice=notice)
    output_buffer.put(b"one")
    while not output_buffer.dead:
        time.sleep(0.01)
    output_buffer.put(b"two")

    assert output_buffer.close(1)
    os.close(write)
    assert (output_buffer.missed, output_buffer.untold) == (6, 6)


def test_one_that_never_reads_is_given_up_in_time() -> None:
    read, write = os.pipe()
    output_buffer = OutputBuffer(write)
    output_buffer.put(b"x" * 1_000_000)
    began = time.monotonic()

    assert not output_buffer.close(0.3)

    assert time.monotonic() - began < 2
    os.close(read)  # which also ends its thread
    os.close(write)


def test_a_descriptor_that_does_not_block_is_waited_for() -> None:
    read, write = os.pipe()
    os.set_blocking(write, False)
    output_buffer = OutputBuffer(write)
    output_buffer.put(b"x" * 200_000)
    time.sleep(0.1)
    found = os.read(read, 65536)
    while len(found) < 200_000:
        found += os.read(read, 65536)

    assert output_buffer.close(5)
    os.close(write)
    os.close(read)
    assert (len(found), output_buffer.missed) == (200_000, 0)


BAR = b"\r 42%|####      | 212/500"


def shown(*chunks: bytes, terminal: bool) -> bytes:
    """Return what is written when a line of ours comes after chunks of a script's."""
    read, write = pty.openpty() if terminal else os.pipe()
    if terminal:
        tty.setraw(write)
    buffer = OutputBuffer(write)
    for chunk in chunks:
        buffer.put(chunk)
    buffer.put_line(b"ours\n")
    buffer.close(1.0)
    seen = os.read(read, 65536)
    os.close(read)
    os.close(write)
    return seen


def test_a_bar_stays_a_bar_below_a_line_of_ours() -> None:
    assert shown(b"before\n", BAR, terminal=True).endswith(b"\r\x1b[Kours\n" + BAR[1:])


@pytest.mark.parametrize(
    ("chunk", "terminal"),
    [
        (b"no bar", True),
        (b"\r 42% in a list\x1b[A", True),  # it moves the cursor itself
        (BAR, False),
    ],
)
def test_a_line_of_ours_never_joins_one_that_is_not_ended(
    chunk: bytes,
    terminal: bool,  # noqa: FBT001 - a case of the table
) -> None:
    assert shown(chunk, terminal=terminal) == chunk + b"\nours\n"


def test_a_line_of_ours_follows_one_that_is_ended() -> None:
    assert shown(BAR, b"\n", terminal=True) == BAR + b"\nours\n"
