"""What the events of a run add up to: progress, starts from one checkpoint, and what helped."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from rocsteady.doctor.machine.machine import software_of
from rocsteady.model import Next, Observation, ProbeOutcome, Strategy
from rocsteady.run.attempt.progress import ProgressCounts
from rocsteady.run.options import RunOptions
from rocsteady.run.recovery.history import History
from rocsteady.store.location import find_place
from rocsteady.store.machine_history import Memory
from tests.run.lived import Lived
from tests.values import failure

if TYPE_CHECKING:
    from tests.conftest import Recorded


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    return Memory(find_place(tmp_path, state=tmp_path / "state"))


def after(recorded: Recorded, *ends: tuple[str, int, bool], read: str = "") -> History:
    """Return the history of attempts: from where, after how many steps, and whether further."""
    lived, furthest = Lived(recorded), 0
    for start, made, further in ends:
        furthest += 2 * further
        lived.ends(failure("abort"), furthest, start=start, made=made, read=read)
    return lived.history


def test_three_attempts_from_one_checkpoint_are_enough(recorded: Recorded) -> None:
    first, barren = ("", 160, True), ("step 150", 10, False)

    def are_enough(*ends: tuple[str, int, bool]) -> bool:
        return after(recorded, *ends).starts.are_enough

    assert not are_enough(first, barren, barren)
    assert are_enough(first, barren, barren, barren)
    assert not are_enough(first, barren, barren, ("step 150", 20, True))
    assert not are_enough(first, barren, barren, ("step 200", 10, False))
    assert not are_enough(*[("", 160, False)] * 9)  # there the ladder has its own bounds


@pytest.mark.parametrize("start", ["", "step 150"])
def test_a_little_further_each_time_but_never_to_a_save_ends_too(
    recorded: Recorded, start: str
) -> None:
    further = [(start, steps, True) for steps in range(10, 19)]

    assert not after(recorded, *further[:7]).starts.are_enough
    assert after(recorded, *further[:8]).starts.are_enough
    assert not after(recorded, *further[:7], ("step 300", 10, True)).starts.are_enough


def test_a_script_that_goes_on_from_a_newer_checkpoint_each_time_is_not_stuck(
    recorded: Recorded,
) -> None:
    lived = Lived(recorded)
    for number in range(20):
        lived.ends(failure("abort"), 2 * number, made=15, read=f"last.pt {number // 3}")

    assert not lived.history.starts.are_enough


def test_too_many_attempts_from_one_checkpoint_end_the_run(recorded: Recorded) -> None:
    lived = Lived(recorded)
    decisions = [
        lived.fails("hang-in-loader", steps, start="step 150") for steps in (160, 155, 155, 155)
    ]

    assert (decisions[-1].next, decisions[-1].code) == (Next.END, 76)


def test_after_two_deaths_from_one_checkpoint_it_is_saved_earlier(recorded: Recorded) -> None:
    one, two = ("step 150", 10, False), ("step 150", 13, True)

    def save_after(*ends: tuple[str, int, bool]) -> int | None:
        return after(recorded, *ends).save_after

    assert save_after(one) is None
    assert save_after(one, two) == 5
    assert save_after(("", 3, True), ("", 1, False)) == 1
    assert save_after(one, ("step 150", 0, False)) is None
    assert save_after(one, two, ("step 155", 90, True), ("step 155", 90, True)) == 5


def test_only_what_the_script_counts_is_further_and_one_step_more_is_not() -> None:
    furthest = ProgressCounts()

    steps = [furthest.passes(step, {}) for step in (1, 160, 161, 160, None, 163)]

    assert steps == [True, True, False, False, False, True]


def test_without_a_step_another_count_of_the_scripts_own_must_be_higher() -> None:
    furthest = ProgressCounts()
    seen = [
        furthest.passes(150, {"saved epoch": 3, "printed": 30}),
        furthest.passes(None, {"saved epoch": 3, "printed": 31}),
        furthest.passes(None, {"saved epoch": 4, "printed": 2}),
        furthest.passes(None, {"epoch": 9}),  # nothing to compare it with
        furthest.passes(None, {"epoch": 10}),
        furthest.passes(None, {}),
    ]

    assert seen == [True, False, True, False, True, False]


def test_what_is_saved_for_the_first_time_is_further_though_it_failed_at_the_same_step() -> None:
    furthest = ProgressCounts()
    seen = [
        furthest.passes(60, {}),
        furthest.passes(60, {}),
        furthest.passes(60, {"saved step": 30}),
        furthest.passes(60, {"saved step": 31}),
        furthest.passes(60, {"saved step": 45}),
    ]

    assert seen == [True, False, True, False, True]


def test_a_newer_checkpoint_is_progress_where_the_script_prints_no_count(
    recorded: Recorded,
) -> None:
    lived = Lived(recorded)

    def progressed(start: str, saves: int = 1, over: str = "") -> bool:
        lived.ends(failure("abort"), 25, own_step=None, start=start, saves=saves, started_over=over)
        return lived.history.progressed

    assert progressed("step-30")
    assert progressed("step-60")
    assert not progressed("step-60")
    assert not progressed("step-90", saves=0)
    assert not progressed("step-99", over="its loss is that of a first step")


def test_a_change_with_which_it_came_further_has_helped(recorded: Recorded) -> None:
    lived = Lived(recorded)
    decisions = [lived.fails("hang-in-loader") for _ in range(3)]
    lived.ends(failure("hang-in-loader"), 120)

    assert decisions[0].remedy == "retry"
    assert lived.history.has_helped
    assert (lived.history.answered, lived.history.remedy) == (
        "hang-in-loader",
        decisions[-1].remedy,
    )


def test_the_same_again_is_not_a_change(recorded: Recorded) -> None:
    lived = Lived(recorded)
    assert lived.fails("hang-in-loader").remedy == "retry"
    lived.ends(failure("hang-in-loader"), 120)

    assert not lived.history.has_helped


def test_what_was_asked_for_answered_no_failure(recorded: Recorded) -> None:
    lived = Lived(recorded, RunOptions(start_with=("loader-inline",)))
    begins = lived.begins()
    lived.ends(failure("hang-in-loader"))

    assert begins.strategy == lived.history.strategy == Strategy(workers=0)
    assert not lived.history.has_helped


def test_what_probes_saw_here_decides_what_comes_first(recorded: Recorded, memory: Memory) -> None:
    machine = recorded.machine("no-amd-gpu")
    fork = Observation(
        probe="loader", variant="2 workers, fork", outcome=ProbeOutcome.HANG, tries=7, seconds=1.0,
        software=software_of(machine), at=1.0,
    )  # fmt: skip
    inline = msgspec.structs.replace(fork, variant="0 workers", outcome=ProbeOutcome.OK)
    for seen in (fork, inline):
        memory.observed("m", seen)
    memory.flush()

    decision = Lived(recorded, memory=memory).fails("hang-in-loader")
    memory.close()

    assert decision.remedy == "loader-inline"


def test_who_takes_a_run_over_knows_which_remedy_led_to_each_attempt(recorded: Recorded) -> None:
    """A remedy that brings an error of the script about is taken back, and the next is tried."""
    remedies = []
    for taken_over in (False, True):
        lived = Lived(recorded)
        lived.fails("hang-in-loader")
        changed = lived.fails("hang-in-loader")
        if taken_over:
            lived.taken_over()
        then = lived.fails("script-error", 0)
        remedies.append((changed.remedy, then.reverted, then.remedy, then.next))

    assert remedies[0] == remedies[1]
    assert remedies[1][1] == remedies[1][0]
    assert remedies[1][3] is Next.AGAIN


def test_one_checkpoint_earlier_stays_so_for_who_takes_the_run_over(recorded: Recorded) -> None:
    lived = Lived(recorded, RunOptions(allow=("checkpoint-back",)), checkpoints=2)
    newest = ("step-20.pt", 20.0)
    decision = lived.fails("nan-loss", checkpoint=newest, start="step 20")
    lived.taken_over()

    assert (decision.remedy, decision.avoid) == ("checkpoint-back", (newest,))
    assert lived.history.avoid == (newest,)
    assert lived.history.strategy.checkpoints_back == 1


def test_a_run_that_somebody_begins_anew_after_its_end_has_new_attempts(
    recorded: Recorded,
) -> None:
    lived = Lived(recorded, RunOptions(max_attempts=2))
    ends = [lived.fails("killed", steps).next for steps in (10, 20, 30, 40)]

    assert ends == [Next.AGAIN, Next.END, Next.AGAIN, Next.END]


def test_a_kill_of_the_supervisor_resets_no_limit(recorded: Recorded) -> None:
    lived = Lived(recorded, RunOptions(max_attempts=2))
    lived.fails("killed", 10)
    lived.taken_over()

    assert lived.fails("killed", 20).next is Next.END
