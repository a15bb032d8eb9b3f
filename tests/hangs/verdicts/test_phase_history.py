"""What is usual is learned without letting one outlier set it."""

from __future__ import annotations

import msgspec
import pytest

from rocsteady.hangs.judgment.judgment import begin, learn
from rocsteady.hangs.judgment.phase_history import from_heartbeats
from rocsteady.hangs.judgment.verdict import Patience
from rocsteady.hangs.proof.stack_frames import place_of
from rocsteady.hangs.values import Wait
from rocsteady.store.values import PhaseHistory, Stays
from tests.hangs.verdicts.heavy_tails import Tally, run
from tests.hangs.verdicts.simulate import (
    TRAINER,
    Page,
    Quiet,
    Simulation,
    Steps,
    process,
    thread,
)


def stays(*seconds: float) -> Stays:
    page = Page()
    for one in seconds:
        page.stay("data", one)
    return Stays(longest=page.longest["data"], histogram=tuple(page.histogram["data"]))


def test_one_outlier_does_not_set_what_is_usual() -> None:
    assert stays(*[0.02] * 50, 90.0).usual_longest() < 0.04


def test_two_outliers_do_not_set_it_after_many_stays_but_three_do() -> None:
    assert stays(*[0.02] * 200, 90.0, 90.0).usual_longest() < 0.04
    assert stays(*[0.02] * 200, 90.0, 90.0, 90.0).usual_longest() == 90.0


def test_a_single_stay_is_all_that_is_known() -> None:
    assert stays(7.0).usual_longest() == 7.0
    assert Stays().usual_longest() == 0.0


def test_processes_add_up_and_the_longest_stays() -> None:
    one, other = Page(), Page()
    one.stay("data", 1.0)
    other.stay("data", 8.0)
    other.stay("compute", 2.0)

    both = from_heartbeats([one.heartbeat(), other.heartbeat()])

    assert both == from_heartbeats([other.heartbeat(), one.heartbeat()])
    assert both.of("data").count == 2
    assert both.of("data").longest == 8.0
    assert both.of("compute").longest == 2.0


def test_what_was_learned_survives_the_journal() -> None:
    simulation = Simulation()
    simulation.run(Steps(seconds=5))

    learned = learn(simulation.pulse)

    assert learned.of("compute").count == simulation.pages[0].step
    assert msgspec.json.decode(msgspec.json.encode(learned), type=PhaseHistory) == learned
    assert begin(0.0, 0.0, learned).earlier == learned


def test_the_wait_that_a_failure_ended_is_not_learned() -> None:
    """A rank whose peers are killed leaves its collective with an error, after a minute in it."""
    simulation = Simulation()
    blocked = process(TRAINER, thread(TRAINER, Wait.LOCK, "main (/home/u/train.py:40)"))
    simulation.run(Steps(seconds=5), Quiet(seconds=60, tree=lambda _: (blocked,)))
    page = simulation.pages[0]
    page.stay("compute", 60.0)
    page.phase, page.since = "finish", 65.0
    simulation.tick(None)

    assert learn(simulation.pulse).of("compute").longest == 60.0
    assert learn(simulation.pulse, failed=True).of("compute").longest < 1.0
    assert learn(simulation.pulse, failed=True).of("compute").count > 10


def test_no_later_rule_fires_before_an_earlier_one() -> None:
    usual = Patience()
    order = (
        usual.sample_span,
        usual.suspect_after,
        usual.steady_stuck_after,
        usual.stuck_after,
        usual.sure_after,
        usual.spin_after,
        usual.long_after,
        usual.works_after,
    )

    assert order == tuple(sorted(order))
    assert usual.samples >= 2  # to compare


@pytest.mark.parametrize(
    ("frames", "place"),
    [
        (("wait (/usr/lib/python3.12/threading.py:3)", "get (/home/u/my.py:8)"), "my.py:8 get"),
        (("wait (C:\\Python312\\Lib\\threading.py:3)", "go (C:\\work\\my.py:8)"), "my.py:8 go"),
        (("f (/x/site-packages/torch/a.py:1)",), "a.py:1 f"),
        (("<genexpr> (train.py:4)",), "train.py:4 <genexpr>"),
        (("0x2 (?:0)", "event (case/t.py:80)"), "t.py:80 event"),
        (("wait (python3.12/threading.py:3)", "get (data/dataloader.py:8)"), "dataloader.py:8 get"),
        (
            ("__init__ (python3.12/x.py:1)", "run (_utils/worker.py:3)", "load (data/mine.py:8)"),
            "mine.py:8 load",
        ),
        ((), ""),
        (None, ""),
    ],
)
def test_the_place_is_the_innermost_line_of_the_user(
    frames: tuple[str, ...] | None, place: str
) -> None:
    assert place_of(frames) == place


def test_heavy_tails_give_no_false_hang_and_every_hang_is_found() -> None:
    """The small form of benchmarks/pulse_simulation.py."""
    tally = Tally()

    for seed in range(8):
        run(seed, 4000, tally, devices=seed >= 6)

    assert tally.false == []
    assert tally.missed == 0
    assert tally.steps == 32_000
