"""A run that is done may take its time to leave, but not for ever."""

from __future__ import annotations

from datetime import timedelta

from rocsteady.evidence.values import Look, ProcessSeen, ThreadSeen, Wait
from rocsteady.supervisor.exits import Leaving

STILL, BUSY = timedelta(seconds=20), timedelta(minutes=10)


def seen(at: float, *, cpu: float, written: int = 0) -> Look:
    thread = ThreadSeen(tid=1, name="python", state="S", cpu=cpu, wait=Wait.LOCK)
    process = ProcessSeen(
        pid=1,
        parent=0,
        name="python",
        python=True,
        read_bytes=0,
        written_bytes=written,
        rss_bytes=0,
        threads=(thread,),
    )
    return Look(at=at, processes=(process,), stacks=False)


def after(*looks: Look) -> Leaving:
    leaving = Leaving()
    for look in looks:
        leaving = leaving.seen(look)
    return leaving


def test_nobody_is_leaving_before_the_work_is_done() -> None:
    assert not Leaving().too_long(1e9, STILL, BUSY)


def test_what_does_nothing_for_long_enough_does_not_leave() -> None:
    leaving = after(*(seen(at, cpu=5.0) for at in range(0, 30, 2)))

    assert not leaving.too_long(21.0, STILL, BUSY)
    assert leaving.too_long(23.0, STILL, BUSY)


def test_an_upload_at_exit_is_left_alone() -> None:
    leaving = after(*(seen(at, cpu=5.0, written=at * 100_000) for at in range(0, 400, 2)))

    assert not leaving.too_long(400.0, STILL, BUSY)


def test_a_processor_that_burns_gets_longer_but_not_for_ever() -> None:
    leaving = after(*(seen(at, cpu=float(at)) for at in range(0, 590, 10)))

    assert not leaving.too_long(595.0, STILL, BUSY)
    assert leaving.too_long(601.0, STILL, BUSY)
