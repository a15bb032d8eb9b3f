"""Old processes are waited for until KFD forgets them, and not longer than promised."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from pathlib import Path

from rocsteady.run.recovery.restart_preparation import wait_until_quiet
from rocsteady.system.gpu_users import wait_until_free


def test_without_a_gpu_there_is_nothing_to_wait_for(tmp_path: Path) -> None:
    assert wait_until_free((1, 2), timedelta(seconds=5), tmp_path / "missing") == ()


def test_waits_until_the_last_is_gone(tmp_path: Path) -> None:
    (tmp_path / "4711").mkdir()
    threading.Timer(0.3, (tmp_path / "4711").rmdir).start()

    start = time.monotonic()
    assert wait_until_free((4711,), timedelta(seconds=5), tmp_path) == ()
    assert 0.2 < time.monotonic() - start < 3


def test_names_those_that_stay(tmp_path: Path) -> None:
    (tmp_path / "4711").mkdir()

    assert wait_until_free((4711, 4712), timedelta(milliseconds=200), tmp_path) == (4711,)


def test_a_gpu_is_waited_for_until_the_kernel_is_quiet_about_it() -> None:
    told = ["ring gfx timeout", "GPU reset begin", ""]
    asked: list[float] = []

    def trouble(since: float) -> str:
        asked.append(since)
        return told.pop(0) if len(told) > 1 else told[0]

    start = time.monotonic()
    rest, most = timedelta(milliseconds=200), timedelta(seconds=5)
    left = wait_until_quiet(trouble, rest=rest, at_most=most, stop=lambda: False)

    assert left == ""
    assert 0.2 < time.monotonic() - start < 3
    assert asked == sorted(asked)


def test_a_gpu_that_does_not_come_to_rest_is_named() -> None:
    short = timedelta(milliseconds=100)

    left = wait_until_quiet(lambda _: "ring", rest=short, at_most=short, stop=lambda: False)
    stopped = wait_until_quiet(lambda _: "ring", rest=short, at_most=2 * short, stop=lambda: True)

    assert (left, stopped) == ("ring", "")
