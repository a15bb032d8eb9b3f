"""How far an attempt is, counted from the beginning of the job."""

from __future__ import annotations

from rocsteady.evidence.values import Heartbeat
from rocsteady.pulse.verdict import Condition, Verdict
from rocsteady.supervisor.reached import Reached

HEALTHY = Verdict(condition=Condition.HEALTHY, why="", quiet=0.0)


def beat(step: int, base: int = 0, total: int | None = None) -> Heartbeat:
    return Heartbeat(
        pid=7,
        rank=None,
        world=None,
        thread=7,
        step=step,
        beats=0,
        phase="compute",
        since=0.0,
        last_step=None,
        ended=False,
        raised=False,
        total=total,
        base=base,
        seconds_in={},
        longest_in={},
        histogram={},
    )


def reached(*beats: Heartbeat, before: int = 0) -> Reached:
    made = Reached(lambda: None, None, before=before)
    made.heartbeats = beats
    return made


def test_what_a_process_says_that_it_went_on_from_is_exact() -> None:
    assert reached(beat(5, base=1200), before=1213).step == 1205


def test_without_it_what_the_checkpoint_had_is_about_right() -> None:
    assert reached(beat(5), before=1213).step == 1218


def test_a_launcher_says_nothing_of_it_and_its_ranks_do() -> None:
    assert reached(beat(0), beat(5, base=1200), beat(4, base=1200), before=1213).step == 1205


def test_the_first_step_is_the_first_after_the_one_it_went_on_from() -> None:
    made = reached(beat(0, base=1200), before=1213)
    made.seen(1.0, HEALTHY)
    before = made.first_step

    made.heartbeats = (beat(1, base=1200, total=2000),)
    sample = made.seen(2.0, HEALTHY)

    assert (before, made.first_step) == (None, 1201)
    assert (sample.step, sample.total) == (1201, 2000)
