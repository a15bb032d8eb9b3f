"""``rocsteady logs``: what a run's script has printed, and what it prints next."""

from __future__ import annotations

import codecs
import errno
import io
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import click
from rocsteady_train.untrusted_file import open_regular

from rocsteady.cli.project import find_run, nothing_run, open_journal
from rocsteady.exit_codes import INTERRUPTED
from rocsteady.printable import printable
from rocsteady.screens.screen import show
from rocsteady.store.journal import Journal
from rocsteady.store.location import run_folder

PIECE = 64 * 1024  # bytes that are read at once
LEAST_HOLE = 1024 * 1024  # bytes; smaller ones are printed
LOOKED_BACK = 256 * 1024 * 1024  # bytes in which the last lines are looked for
_SEEK_DATA: int | None = getattr(os, "SEEK_DATA", None)  # Windows has none
POLL_EVERY = 0.3  # seconds


@click.command("logs")
@click.argument("name", metavar="[RUN]", required=False)
@click.option("-f", "--follow", is_flag=True, help="Print new output until the run ends.")
@click.option(
    "-n",
    "--lines",
    type=click.IntRange(0),
    metavar="N",
    help="Start with the last N lines since the last restart. Default: print everything.",
)
@click.pass_context
def command(ctx: click.Context, *, name: str | None, follow: bool, lines: int | None) -> None:
    """Print the output of RUN, each line with the time (UTC) at which it arrived.

    Without RUN: the last run of this project. ^C stops following; the run continues.

    Exit code: 0, 2 for incorrect usage, 130 on ^C.
    """
    with open_journal(name) as journal:
        if journal is None:
            raise nothing_run(name)
        run = find_run(journal, name).run
        folder = run_folder(journal.place.folder, run.name)
        going_on = partial(_goes_on, journal, run.name) if follow else lambda: False
        try:
            _print(folder, lines, going_on)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)


def _goes_on(journal: Journal | None, name: str) -> bool:
    line = find_run(journal, name)
    return line.run.ended is None and line.alive is not False


def _print(folder: Path, lines: int | None, going_on: Callable[[], bool]) -> None:
    logs = _logs(folder)
    number = logs[-1] if logs and lines is not None else 1
    while True:
        more = going_on()  # before looking: what is printed until then is not missed
        path = folder / f"attempt-{number}.log"
        if path.exists():
            _print_attempt(path, number, lines, partial(_is_last, folder, number, going_on))
            number, lines = number + 1, None
        elif any(each > number for each in _logs(folder)):
            number += 1
        elif more:
            time.sleep(POLL_EVERY)
        else:
            return


def _is_last(folder: Path, number: int, going_on: Callable[[], bool]) -> bool:
    return number == _logs(folder)[-1] and going_on()


def _print_attempt(
    path: Path, number: int, lines: int | None, going_on: Callable[[], bool]
) -> None:
    if number > 1:
        show(f"-- retry {number - 1} --\n")
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    with open_regular(path, follow=False) as log:
        if lines is not None:
            _seek_last(log, lines)
        while True:
            more = going_on()
            if os.fstat(log.fileno()).st_size < log.tell():
                log.seek(0, os.SEEK_END)
                show(f"\nrocsteady: {path.name} reached log_limit; lines may be missing here\n")
            while (hole := _skip_hole(log)) or (piece := log.read(PIECE)):
                if hole:
                    show(f"\nrocsteady: skipped {hole:,} bytes: {path.name} has a hole here\n")
                    continue
                show(printable(decoder.decode(piece)))  # also its colours are not ours
            if not more:
                return
            time.sleep(POLL_EVERY)


def _skip_hole(log: io.FileIO) -> int:
    """Skip a hole in a file and return its bytes: nobody reads 1 TB of zeros."""
    at, size = log.tell(), os.fstat(log.fileno()).st_size
    if _SEEK_DATA is None or size - at < LEAST_HOLE:
        return 0
    try:
        after = os.lseek(log.fileno(), at, _SEEK_DATA)
    except OSError as error:
        after = size if error.errno == errno.ENXIO else at  # nothing more was written
    if after - at < LEAST_HOLE:
        after = at
    log.seek(after)
    return after - at


def _seek_last(log: io.FileIO, lines: int) -> None:
    """Seek to the start of the last lines, no further back than a long log."""
    at, found = log.seek(0, os.SEEK_END), -1  # the end of the last line begins none
    least = max(0, at - LOOKED_BACK)
    while at > least:
        size = min(PIECE, at - least)
        at = log.seek(at - size)
        piece = log.read(size)
        ends = piece.count(b"\n")
        if found + ends < lines:
            found += ends
            continue
        cut = size
        while found < lines:
            cut = piece.rindex(b"\n", 0, cut)
            found += 1
        log.seek(at + cut + 1)
        return
    log.seek(least)
    if least:
        show(f"rocsteady: showing only the last {LOOKED_BACK >> 20} MiB of {lines:,} lines\n")


def _logs(folder: Path) -> list[int]:
    names = (path.stem.rpartition("-")[2] for path in folder.glob("attempt-*.log"))
    return sorted(int(name) for name in names if name.isdecimal())
