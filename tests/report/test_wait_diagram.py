"""The picture of a wait: who is in it, where it ends, and what it does not claim."""

from __future__ import annotations

from rocsteady.hangs.proof.wait_set import Waiter
from rocsteady.report.wait_diagram import frame_at, wait_boxes, wait_of

PLACE = "train.py:24 load"
OWN, LIBRARY = ("load (train.py:24)",), ("wait (threading.py:327)",)
MAIN = Waiter(
    pid=1, tid=1, place="train.py:50 main", waits_for="pipe 7", frames=("main (train.py:50)",),
    ended_by=((3, 3), (2, 9), (2, 2)),
)  # fmt: skip
WORKER = Waiter(
    pid=2, tid=2, place=PLACE, waits_for="lock 0x1", frames=OWN, ended_by=((2, 9),)
)  # fmt: skip
FEEDER = Waiter(
    pid=2, tid=9, place="threading.py:327 wait", waits_for="lock 0x2", frames=LIBRARY,
    ended_by=((2, 2),),
)  # fmt: skip
IDLE = Waiter(pid=3, tid=3, place="selectors.py:4 select", waits_for="pipe 8", frames=LIBRARY)


def test_the_chain_leads_to_the_blamed_thread_and_helpers_are_not_in_it() -> None:
    boxes = wait_boxes((MAIN, WORKER, FEEDER, IDLE), PLACE)

    assert [box.blamed for box in boxes] == [False, True, False]
    assert [box.waits_for for box in boxes] == ["a pipe", "a lock", ""]
    assert boxes[-1].title == "a lock"


def test_the_chain_of_ranks_begins_with_the_blamed_one() -> None:
    victim = Waiter(pid=5, tid=5, place="ddp.py:9 <module>", waits_for="lock 0x3", frames=OWN)
    culprit = Waiter(pid=6, tid=6, place="ddp.py:6 load", waits_for="lock 0x4", frames=OWN)

    boxes = wait_boxes((victim, culprit), culprit.place)

    assert [(box.title, box.detail, box.blamed) for box in boxes[:1]] == [
        ("ddp.py:6 in load", "process 6", True)
    ]
    assert wait_boxes((victim, culprit), "")[0].detail == "process 5"


def test_two_threads_that_wait_for_each_other_end_in_a_circle() -> None:
    one = Waiter(pid=1, tid=1, place="a.py:1 f", waits_for="lock 0x1", frames=("f (a.py:1)",),
                 ended_by=((1, 2),))  # fmt: skip
    two = Waiter(pid=1, tid=2, place="a.py:9 g", waits_for="lock 0x2", frames=("g (a.py:9)",),
                 ended_by=((1, 1),))  # fmt: skip

    boxes = wait_boxes((one, two), "a.py:1 f")

    assert len(boxes) == 3
    assert "a.py:1" in boxes[-1].detail


def test_a_process_that_runs_has_no_picture() -> None:
    runs = Waiter(pid=1, tid=1, place=PLACE, waits_for="runs", frames=OWN)
    assert wait_boxes((runs,), PLACE) == ()
    assert wait_boxes((), PLACE) == ()


def test_the_file_of_a_place_is_that_of_its_stack() -> None:
    assert frame_at((WORKER,), PLACE) == ("train.py", 24)
    assert frame_at((), "data/load.py:7 read") == ("data/load.py", 7)
    assert frame_at((), "") is None


def test_what_is_waited_for_is_named_by_its_kind() -> None:
    waits = ("shared lock 0x1", "pipe 7", "the end of a child", "time", "a lock")
    named = [wait_of(Waiter(pid=1, tid=1, place="", waits_for=each)) for each in waits]

    assert named == ["a lock", "a pipe", "the end of a child", "time", "a lock"]


def test_a_queue_is_named_whatever_it_waits_with() -> None:
    frames = ("wait (threading.py:320)", "Queue.get (queue.py:171)", "main (train.py:50)")
    empty = Waiter(pid=1, tid=1, place=PLACE, waits_for="lock 0x1", frames=frames)
    own = Waiter(pid=1, tid=1, place=PLACE, waits_for="lock 0x1", frames=(*OWN, *frames))

    assert wait_of(empty) == "a queue that stays empty"
    assert wait_of(own) == "a lock"  # the queue called the user's code, which waits
