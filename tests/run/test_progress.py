"""How far an attempt is, counted from the beginning of the job."""

from __future__ import annotations

import time

import msgspec
import pytest

from rocsteady.hangs.heartbeat_pages import CheckpointRead
from rocsteady.hangs.judgment.verdict import Verdict
from rocsteady.hangs.output import PrintedProgress, take_apart
from rocsteady.hangs.values import Heartbeat
from rocsteady.model import RunState
from rocsteady.run.attempt.attempt import own_step
from rocsteady.run.attempt.progress import AttemptProgress, StepTimes

HEALTHY = Verdict(condition=RunState.HEALTHY, why="", quiet=0.0)


def beat(step: int, base: int = 0, total: int | None = None, batches: int = 0) -> Heartbeat:
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
        batches=batches,
        seconds_in={},
        longest_in={},
        histogram={},
    )


def reached(*beats: Heartbeat, before: int = 0) -> AttemptProgress:
    made = AttemptProgress(lambda: None, None, before=before)
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


def test_a_look_that_comes_late_does_not_put_a_checkpoint_before_its_step() -> None:
    step_times = StepTimes()
    made = AttemptProgress(lambda: None, None, step_times=step_times)
    now, mono = time.time(), time.monotonic()
    for step, ago in ((20, 9.0), (34, 5.0)):
        made.heartbeats = (msgspec.structs.replace(beat(step), last_step=mono - ago),)
        made.seen(mono, HEALTHY)

    assert step_times.step_at(now - 6.0) == (20, 34)


def test_a_script_that_resumes_by_itself_is_counted_from_the_step_that_was_saved() -> None:
    step_times, now, mono = StepTimes(), time.time(), time.monotonic()
    made = AttemptProgress(lambda: None, None, step_times=step_times)
    for step, ago, saved in ((37, 9.0, {}), (42, 5.0, {"saved": mono - 6.0, "saved_step": 40})):
        seen = {"last_step": mono - ago, **saved}
        made.heartbeats = (msgspec.structs.replace(beat(step), **seen),)
        made.seen(mono, HEALTHY)

    again = AttemptProgress(lambda: None, None, step_times=step_times)
    again.resumes_at(*step_times.saved_step(now - 6.1))
    again.heartbeats = (beat(107),)
    assert (again.step, again.unsure) == (147, 5)
    again.heartbeats = (beat(107, base=40),)
    assert (again.step, again.unsure) == (147, 0)  # it says itself where it went on from


def test_a_save_is_counted_once_also_if_its_time_is_not() -> None:
    """One of another thread than the one that trains, or so short that no time was counted."""
    made = AttemptProgress(lambda: None, None)
    saving = [(0.1, None), (0.2, None), (0.2, None), (0.2, 5.0), (0.2, 5.0)]
    for step, (seconds, saved) in zip((20, 20, 30, 40, 41), saving, strict=True):
        seen = {"seconds_in": {"checkpoint": seconds}, "saved": saved}
        made.heartbeats = (msgspec.structs.replace(beat(step), **seen),)
        made.seen(time.monotonic(), HEALTHY)

    assert made.saves == 2


def test_where_the_job_names_a_pattern_it_is_the_count_of_work() -> None:
    printed = [PrintedProgress(n=3, total=300, rate=None)]
    made = AttemptProgress(lambda: printed[-1], None, before=2, by_log=True)
    made.heartbeats = (beat(4000, base=900, total=9000),)

    made.look()
    first = made.seen(1.0, HEALTHY)
    printed.append(PrintedProgress(n=7, total=300, rate=None))
    made.look()
    sample = made.seen(5.0, HEALTHY)

    assert (first.step, sample.step, sample.total) == (3, 7, 300)
    assert (made.first_step, made.step, made.seconds) == (3, 7, 4.0)


def test_before_the_first_line_it_is_where_it_went_on_from() -> None:
    made = AttemptProgress(lambda: None, None, before=150, by_log=True)

    assert (made.seen(1.0, HEALTHY).step, made.first_step) == (150, None)


def test_what_the_job_says_of_its_total_comes_first() -> None:
    made = AttemptProgress(lambda: PrintedProgress(n=3, total=300, rate=None), 200, by_log=True)
    made.look()

    assert made.seen(1.0, HEALTHY).total == 200


def test_work_that_a_pattern_does_not_see_can_be_lost_all_the_same() -> None:
    made = AttemptProgress(lambda: None, None, by_log=True)
    for second in (1, 2, 9):
        made.heartbeats = (beat(second),)
        made.seen(float(second), HEALTHY)

    assert (made.step, made.first_step, made.seconds) == (None, None, 8.0)


def printing(*snapshots: tuple[int, int], before: int = 150) -> AttemptProgress:
    """Look at a resumed script that prints a counter beside the steps that it makes."""
    printed: list[PrintedProgress] = []
    made = AttemptProgress(
        lambda: printed[-1] if printed else None, None, before=before, resumed=True
    )
    for number, (n, step) in enumerate(snapshots):
        printed.append(PrintedProgress(n=n, total=400, rate=None))
        made.look()
        made.heartbeats = (beat(step),)
        made.seen(float(number), HEALTHY)
    return made


def test_a_resumed_script_that_counts_from_the_beginning_is_believed() -> None:
    assert printing((1, 2), (5, 5), (10, 11)).step == 11
    assert printing((151, 2), (155, 5), (160, 11)).step == 161
    assert printing((151, 2), (155, 5), (160, 11)).own_step == 161


def test_what_is_printed_after_the_look_at_the_steps_adds_none() -> None:
    lines = [PrintedProgress(n=160, total=200, rate=None)]
    made = AttemptProgress(lambda: lines[-1], None, before=160, resumed=True)
    for step in range(1, 41):
        lines.append(PrintedProgress(n=160 + step - step % 2, total=200, rate=None))
        made.look()
        made.heartbeats = (beat(step),)
        lines.append(PrintedProgress(n=161 + step, total=200, rate=None))
        made.seen(float(step), HEALTHY)

    assert (made.step, made.seen(41.0, HEALTHY).total) == (200, 200)


@pytest.mark.parametrize("lag", [0, 3, 17])
def test_a_line_that_is_seen_late_takes_no_steps_away(lag: int) -> None:
    """A script resumes at 150, counts from 0, and prints every 50th step; looks are 20 apart."""
    lines: list[PrintedProgress] = []
    made = AttemptProgress(lambda: lines[-1] if lines else None, None, before=150, resumed=True)
    for step in (*range(1 + lag, 150, 20), 150):
        printed = 150 + (step - 1) // 50 * 50
        lines.append(PrintedProgress(n=printed, total=None, rate=None))
        made.look()
        made.heartbeats = (beat(step),)
        made.seen(float(step), HEALTHY)

    assert made.step == 300


def test_a_counter_in_other_units_confirms_nothing() -> None:
    for snapshots in (((3, 10), (4, 400)), ((10, 10), (90, 90), (10, 110)), ((5, 5),)):
        made = printing(*snapshots)
        assert (made.step, made.own_step) == (150 + snapshots[-1][1], None)


def test_what_starts_at_the_beginning_needs_nobody_to_confirm_it() -> None:
    assert (reached(beat(7)).own_step, reached(beat(7), before=3).own_step) == (7, None)
    assert (
        reached(beat(7, total=400), before=3).own_step == 7
    )  # rocsteady_train.Loop, which would say


def total_after(*printed: tuple[str, int], batches: int) -> list[int | None]:
    """Return the total after each line that a script prints beside its steps."""
    lines: list[PrintedProgress | None] = [None]
    made = AttemptProgress(lambda: lines[-1], None)
    totals = []
    for number, (line, step) in enumerate(printed):
        lines.append(take_apart(line).progress or lines[-1])
        made.look()
        made.heartbeats = (beat(step, batches=batches),)
        totals.append(made.seen(float(number), HEALTHY).total)
    return totals


def test_a_total_in_epochs_is_made_one_in_steps() -> None:
    epochs = [(f"Epoch {n}/4: 50%|#####     | 50/100 [00:01<00:01]", 100 * n - 50) for n in (1, 2)]
    assert total_after(*epochs, batches=100) == [400, 400]

    accumulated = [(f"epoch {n} of 4", 25 * n + 2) for n in (1, 2, 3)]  # four batches to a step
    assert total_after(*accumulated, batches=100)[-1] == 100


BAR = "Epoch {}: 50%|#####     | {}/100 [00:01<00:01]"


def bars(*seen: tuple[int, int], line: str = BAR) -> list[tuple[int | None, int | None]]:
    """Return the step and the total after each bar of a script that has no page."""
    printed: list[PrintedProgress | None] = [None]
    made = AttemptProgress(lambda: printed[-1], None)
    found = []
    for number, (epoch, n) in enumerate(seen):
        printed.append(take_apart(line.format(epoch, n)).progress)
        made.look()
        total = made.seen(float(number), HEALTHY).total
        found.append((made.step, total))
    return found


def test_the_bar_of_an_epoch_is_not_the_total_of_the_run() -> None:
    assert bars((1, 57), (1, 99), (2, 3), (2, 90)) == [
        (57, None),
        (99, None),
        (103, None),
        (190, None),
    ]
    epochs = BAR.replace("{}:", "{}/4:", 1)
    assert bars((1, 57), (1, 100), (2, 3), line=epochs) == [(57, 400), (100, 400), (103, 400)]


def test_the_bar_of_a_validation_adds_nothing() -> None:
    assert bars((1, 100), (1, 20), (1, 30), (2, 10))[-1] == (110, None)


def test_a_step_of_the_run_beside_its_epoch_goes_on_in_the_next() -> None:
    assert bars((1, 10), (1, 20), (2, 30))[-1] == (30, 100)


def test_a_bar_as_long_as_the_loader_is_one_epochs() -> None:
    bar = "50%|#####     | {}/100 [00:01<00:01]"
    seen = ((bar.format(50), 50), (bar.format(57), 57))
    assert total_after(*seen, batches=100) == [None, None]
    assert total_after(*seen, batches=40) == [None, 100]


def test_a_bar_that_nothing_else_explains_is_one_epochs_probably() -> None:
    bar = "{}%|#####     | {}/100 [00:01<00:01]"
    seen = ((bar.format(20, 20), 20), (bar.format(100, 100), 100), (bar.format(3, 3), 103))
    assert total_after(*seen, batches=0) == [None, None, None]
    assert bars((50, 50), (57, 57), line=bar) == [(50, None), (57, None)]

    named = (f"steps: {bar.format(20, 20)}", 20), (f"steps: {bar.format(30, 30)}", 30)
    assert total_after(*named, batches=0)[-1] == 100


def test_a_step_never_exceeds_its_total() -> None:
    assert total_after(("Epoch 1/4", 3), ("Epoch 1/4", 30), batches=5) == [20, None]
    assert total_after(("Epoch 1/4", 3), batches=0) == [None]  # 4 is not in steps
    assert total_after(("12/100", 350), batches=0) == [None]


def test_a_script_that_resumed_by_itself_is_counted_as_the_job() -> None:
    progress = AttemptProgress(lambda: None, None)
    progress.heartbeats = (beat(1),)
    progress.resumes_at(50)
    progress.heartbeats = (beat(79),)

    assert (progress.before, progress.step) == (50, 129)
    progress.resumes_at(90)  # known since
    assert progress.step == 129


@pytest.mark.parametrize(
    ("found", "resumed", "base", "expected"),
    [
        (None, False, 0, 9),
        (CheckpointRead(path="/c", written=1), False, 0, None),
        (CheckpointRead(path="/c", written=1), True, 20, 29),
        (None, True, 20, 29),
        (None, True, 0, None),
    ],
)
def test_steps_of_a_script_that_went_on_by_itself_are_not_the_jobs(
    found: CheckpointRead | None, *, resumed: bool, base: int, expected: int | None
) -> None:
    progress = AttemptProgress(lambda: None, None, resumed=resumed)
    progress.heartbeats = (beat(9, base),)

    assert own_step(progress, found, resumed=resumed) == expected
