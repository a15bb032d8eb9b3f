"""A deadline that slips is said once, with what could be done; a hiccup says nothing."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from rocsteady.model import Deadline, Forecast, RunOutcome, RunState, Strategy
from rocsteady.run.options import Fallback, StopRule
from rocsteady.run.recovery.decision import too_slow
from rocsteady.run.telling.announcer import Announcer
from rocsteady.run.telling.deadline_monitor import (
    LONGEST_WAIT,
    MAX_POINTS,
    DeadlineMonitor,
    LatenessFilter,
)
from rocsteady.store.forecast import lines_ahead, story_ahead
from rocsteady.store.values import Run, RunLine, RunRecord, Sample
from tests.values import decided

RUN = Run(
    id=1, name="calm-otter", command=("python",), job={}, strategy=Strategy(), folder="/r",
    machine="m", boot_id="b", process="", started=1000.0,
)  # fmt: skip
FASTER = Fallback(number=3, title="CPU, 2 threads", strategy=Strategy(device="cpu"), rate=4.0)
STORY = RunRecord(
    run=RUN, attempts=(), incidents=(), failures=(), decisions=(), messages=(), intents=(),
    progress=(), losses=(), seconds_lost=0.0,
)  # fmt: skip


class Told(Announcer):
    """Keeps what is said."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.through = self.lines.append


class Training:
    """A run as its samples show it."""

    def __init__(
        self, within: timedelta | None, options: tuple[Fallback, ...] = (), *, resumes: bool = True
    ) -> None:
        self.told = Told()
        self.at, self.step = RUN.started, 0
        self.deadline_monitor = DeadlineMonitor(
            RUN,
            Deadline(within=within) if within else None,
            self.told,
            options=lambda: options,
            resumes=lambda: resumes,
            between=lambda: None,
        )
        self.deadline_monitor.begin(1)

    def goes(self, steps: int, each: float = 1.0) -> None:
        for _ in range(steps):
            self.at, self.step = self.at + each, self.step + 1
            self.snapshots()

    def waits(self, seconds: int) -> None:
        for _ in range(seconds):
            self.at += 1.0
            self.snapshots()

    def snapshots(self) -> None:
        sample = Sample(at=self.at, step=self.step, verdict=RunState.HEALTHY, quiet=0.0, total=1000)
        self.deadline_monitor.seen(sample)


def test_the_pace_of_an_option_is_that_since_it_began() -> None:
    training, rule = Training(None), StopRule(within=60.0, failures=2, least=1.0)
    training.goes(100)
    monitor = training.deadline_monitor
    assert too_slow(rule, monitor.option_points, training.at) == ""

    monitor.other_option()
    assert too_slow(rule, monitor.option_points, training.at).startswith("0 steps/s")
    monitor.begin(2)
    training.goes(31, each=2.0)

    slow = "0.5 steps/s after 60 s, and the plan asks for 1"
    assert too_slow(rule, monitor.option_points, training.at) == slow
    assert too_slow(rule, monitor.option_points, training.at + 60) != slow, "and waits count"
    asks_nothing = msgspec.structs.replace(rule, least=None)
    assert too_slow(asks_nothing, monitor.option_points, training.at) == ""


def test_a_slip_is_said_once_with_what_could_be_done() -> None:
    training = Training(timedelta(seconds=1100))

    training.goes(400)
    assert training.told.lines == []
    training.goes(250, each=2.0)

    late, could = training.told.lines
    assert late.startswith(
        "rocsteady: the run will miss the deadline at this pace: finishes about "
    )
    assert " late" in late
    assert could == "rocsteady: the run continues. To find faster options: rocsteady plan"


def test_a_faster_option_of_the_plan_is_named_with_its_command() -> None:
    training = Training(timedelta(seconds=700), options=(FASTER,))

    training.goes(300)

    assert training.told.lines[1] == (
        "rocsteady: the run continues. Option 3 of the plan, CPU, 2 threads, would be on time:"
        " rocsteady stop calm-otter; rocsteady run --plan 3"
    )


@pytest.mark.parametrize(
    ("rate", "resumes", "expected"),
    [(1.12, True, "is faster"), (1.12, False, ""), (1.0, True, ""), (None, True, "")],
)
def test_an_option_that_is_only_faster_is_not_called_in_time(
    rate: float | None, expected: str, *, resumes: bool
) -> None:
    option = msgspec.structs.replace(FASTER, rate=rate)
    training = Training(timedelta(seconds=500), options=(option,), resumes=resumes)

    training.goes(400)

    named = f"Option 3 of the plan, CPU, 2 threads, {expected}: " in training.told.lines[1]
    assert named == bool(expected)
    assert ("To find faster options: rocsteady plan" in training.told.lines[1]) != named


def test_in_time_again_is_said_once() -> None:
    training = Training(timedelta(seconds=700))

    training.goes(100)
    training.goes(899, each=0.25)

    assert len(training.told.lines) == 3
    assert training.told.lines[2].startswith("rocsteady: the run is on time again: finishes about ")
    assert " to spare" in training.told.lines[2]


def test_a_hiccup_says_nothing() -> None:
    training = Training(timedelta(seconds=1500))

    training.goes(250)
    training.waits(60)
    training.goes(150)

    assert training.told.lines == []


def test_a_deadline_that_passes_unforeseen_is_said() -> None:
    training = Training(timedelta(seconds=30))

    training.waits(100)

    (line,) = training.told.lines
    assert line.startswith("rocsteady: the deadline, ")
    assert line.endswith(", has passed.")


def test_without_a_deadline_nothing_is_said_and_all_is_known() -> None:
    training = Training(None)

    training.goes(500)

    ahead = training.deadline_monitor.forecast(training.at)
    assert ahead is not None
    assert ahead.at == pytest.approx(RUN.started + 1000, rel=0.001)
    assert (training.told.lines, training.deadline_monitor.remains()) == ([], "")


def test_the_points_of_a_long_run_stay_few_and_say_the_same() -> None:
    training = Training(None)
    training.goes(990, each=0.1)
    few = training.deadline_monitor.forecast(training.at)
    for number in range(2, 12):  # again and again from the beginning
        training.deadline_monitor.begin(number)
        training.step = 0
        training.goes(990, each=0.1)

    many = training.deadline_monitor.forecast(training.at)

    assert few is not None and many is not None  # noqa: PT018 - for mypy
    assert many.rate == pytest.approx(few.rate, rel=0.02)
    assert len(training.deadline_monitor._points) <= MAX_POINTS + 1


def test_what_is_needed_is_asked_for_only_where_this_option_cannot() -> None:
    now = pytest.MonkeyPatch()
    in_time, late = Training(timedelta(seconds=2000)), Training(timedelta(seconds=800))
    anew = Training(timedelta(seconds=800), resumes=False)
    for training in (in_time, late, anew):
        training.goes(400)
    try:
        now.setattr("time.time", lambda: late.at)

        assert in_time.deadline_monitor.needs() is None
        assert late.deadline_monitor.needs() == pytest.approx(600 / 400 / 0.9)
        assert anew.deadline_monitor.needs() == pytest.approx(1000 / 400 / 0.9)
        assert "600 of 1,000 steps left, 10 min at" in late.deadline_monitor.remains()
        assert late.deadline_monitor.remains().endswith(": too late at this pace")
        assert ": on time if resumed by " in in_time.deadline_monitor.remains()
    finally:
        now.undo()


def test_after_another_option_was_taken_the_old_pace_does_not_count() -> None:
    training = Training(timedelta(seconds=800))
    training.goes(400)

    training.deadline_monitor.other_option()
    training.deadline_monitor.begin(2)

    assert training.deadline_monitor.forecast(training.at) is None
    training.goes(100, each=0.2)
    ahead = training.deadline_monitor.forecast(training.at)
    assert ahead is not None
    assert ahead.rate == pytest.approx(5.0, rel=0.01)


def forecast_at(at: float, off: float) -> Forecast:
    return Forecast(at=at, early=at - off, late=at + off, rate=1.0, left=1, failures=0.0)


def test_each_change_must_last_longer_than_the_one_before() -> None:
    deadline, at = 1e6, 0.0
    lateness = LatenessFilter(0.0, deadline)
    changes = []
    for turn in range(8):
        off = -1.0 if turn % 2 else 1.0
        for _ in range(1300):
            at += 1.0
            if lateness.changes(at, forecast_at(deadline + off, 10.0)):
                changes.append(turn)

    assert changes == [0, 1]  # 600 s, then 1200 s, and from then on it never lasts long enough
    assert LONGEST_WAIT == 600.0


def test_where_the_whole_interval_is_late_it_is_said_sooner() -> None:
    lateness = LatenessFilter(0.0, 1000.0)  # 20 s

    said = [second for second in range(20) if lateness.changes(second, forecast_at(2000.0, 500.0))]

    assert said == [5]


def line(**changes: object) -> RunLine:
    told = RunLine(
        run=RUN, alive=True, attempts=1, incidents=0, step=5, total=10, rate=1.0,
        last_progress=1005.0, seconds_left=5.0,
    )  # fmt: skip
    return msgspec.structs.replace(told, **changes)


def test_a_run_that_ended_has_a_deadline_and_no_forecast() -> None:
    job = {"deadline": {"within": "PT1H"}}
    ended = msgspec.structs.replace(RUN, job=job, ended=2000.0, outcome=RunOutcome.DONE)

    def never(name: str) -> RunRecord:
        raise AssertionError(name)

    (seen,) = lines_ahead([line(run=ended)], never, now=3000.0)

    assert (seen.deadline, seen.forecast) == (4600.0, None)


def test_a_run_that_fell_to_another_option_is_foretold_by_that_option() -> None:
    fell = decided(fallback=2, at=1.0)

    told = story_ahead(msgspec.structs.replace(STORY, decisions=(fell,)), [], now=3000.0)

    assert (told.deadline, told.forecast) == (None, None)  # no attempt was made on it yet
