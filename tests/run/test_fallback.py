"""A run falls to the next option of its plan: when, to which, and when not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from rocsteady.model import Decision, Strategy
from rocsteady.plan.saved_plan import options_after
from rocsteady.plan.values import Basis, Option, Pace, Plan
from rocsteady.run.options import Fallback, RunOptions
from rocsteady.store.location import find_place
from rocsteady.store.machine_history import Memory
from rocsteady.store.values import Deadly
from tests import values
from tests.run.lived import Lived

if TYPE_CHECKING:
    from tests.conftest import Recorded

FIRST = Strategy(attention="math")
CPU = Fallback(number=2, title="CPU, 2 threads", strategy=Strategy(device="cpu"), rate=2.0)
SLOW = Fallback(number=4, title="one GPU", strategy=Strategy(gpus=(0,)), rate=8.0)


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    return Memory(find_place(tmp_path, state=tmp_path / "state"))


def lived(recorded: Recorded, memory: Memory | None = None, *options: Fallback) -> Lived:
    return Lived(recorded, RunOptions(strategy=FIRST, fallbacks=options or (CPU, SLOW)), memory)


def until_it_falls(run: Lived, kind: str) -> Decision:
    for _ in range(20):
        decision = run.fails(kind)
        if decision.ends or decision.fallback:
            return decision
    raise AssertionError("it never ends")


def test_a_run_starts_with_the_strategy_of_its_option(recorded: Recorded) -> None:
    begins = lived(recorded).begins()
    assert (begins.strategy, begins.crashed) == (FIRST, None)


def test_remedies_come_first_then_the_options_in_their_order_and_then_it_ends(
    recorded: Recorded,
) -> None:
    run = lived(recorded)

    assert run.fails("abort").remedy == "retry"
    one = until_it_falls(run, "abort")
    assert run.fails("abort").remedy == "retry"  # the new option has the whole ladder
    two = until_it_falls(run, "abort")
    three = until_it_falls(run, "abort")

    assert one.why == (
        "No workarounds are left; falling back to option 2 of the plan: CPU, 2 threads."
    )
    assert (one.fallback, one.strategy, one.remedy) == (2, CPU.strategy, "")
    assert (two.fallback, two.strategy, three.ends) == (4, SLOW.strategy, True)
    assert run.history.fallen_to == [2, 4]


@pytest.mark.parametrize("kind", ["script-error", "disk-error", "gpu-overheated", "device-assert"])
def test_what_no_option_mends_ends_it(recorded: Recorded, kind: str) -> None:
    run = lived(recorded)

    assert run.fails(kind).ends
    assert run.history.fallen_to == []


def test_an_option_on_which_the_script_does_not_start_is_passed_over(recorded: Recorded) -> None:
    run = lived(recorded)
    until_it_falls(run, "abort")

    step = run.fails("script-error", steps=0)

    assert step.fallback == 4
    assert step.why == "This option does not work; falling back to option 4 of the plan: one GPU."


def test_the_scripts_own_error_later_on_an_option_is_its_own(recorded: Recorded) -> None:
    run = lived(recorded)
    until_it_falls(run, "abort")

    assert run.fails("script-error", steps=90).ends


def test_what_was_tried_or_took_the_machine_down_is_never_fallen_to(
    recorded: Recorded, memory: Memory
) -> None:
    same = msgspec.structs.replace(CPU, number=3, strategy=FIRST)
    back = msgspec.structs.replace(CPU.strategy, checkpoints_back=1)
    memory.killed(Deadly(machine="m", script="s", strategy=back, command="python", at=1.0))
    memory.flush()

    step = until_it_falls(lived(recorded, memory, same, CPU, SLOW), "abort")
    memory.close()

    assert step.fallback == 4


def test_a_first_option_that_took_the_machine_down_is_fallen_from_at_once(
    recorded: Recorded, memory: Memory
) -> None:
    memory.killed(Deadly(machine="m", script="s", strategy=FIRST, command="python", at=1.0))
    memory.flush()
    run = lived(recorded, memory)

    begins = run.begins()
    memory.close()

    assert begins.crashed == FIRST
    assert run.history.strategy != FIRST


def test_a_gpu_that_took_the_machine_down_is_not_fallen_to_with_other_settings(
    recorded: Recorded, memory: Memory
) -> None:
    memory.killed(Deadly(machine="m", script="s", strategy=Strategy(), command="", at=1.0))
    memory.flush()
    run = lived(recorded, memory, SLOW, CPU)
    memory.close()

    assert until_it_falls(run, "abort").fallback == 2  # past SLOW, which is a GPU


def test_an_option_that_is_fallen_to_is_no_remedy_that_helped(recorded: Recorded) -> None:
    run = lived(recorded)
    until_it_falls(run, "abort")
    run.ends(values.failure("abort"), 120)

    assert not run.history.has_helped


def test_a_restart_takes_the_first_option_that_is_in_time_where_this_one_is_not(
    recorded: Recorded,
) -> None:
    run = lived(recorded)

    step = run.fails("abort", needs=5.0)

    assert (step.fallback, step.strategy) == (4, SLOW.strategy)
    assert step.why == (
        "At this pace the run misses the deadline; switching to option 4 of the plan, which would"
        " be on time: one GPU."
    )
    assert run.history.fallen_to == [4]  # the CPU is slower, and still better than to give up


@pytest.mark.parametrize("needs", [None, 9.0])
def test_no_option_is_taken_for_a_deadline_that_none_meets(
    recorded: Recorded, needs: float | None
) -> None:
    assert lived(recorded).fails("abort", needs=needs).remedy == "retry"


def test_an_error_of_the_script_is_not_hurried_past(recorded: Recorded) -> None:
    assert lived(recorded).fails("script-error", needs=1.0).ends


def test_a_run_that_was_left_goes_on_with_the_option_that_it_fell_to(recorded: Recorded) -> None:
    run = lived(recorded)
    until_it_falls(run, "abort")
    run.taken_over()

    assert run.history.strategy == CPU.strategy  # decided, and not yet begun
    assert run.history.fallen_to == [2]
    assert run.fails("abort").remedy == "retry"


def test_the_attempts_on_the_option_that_it_fell_to_count(recorded: Recorded) -> None:
    run = lived(recorded)
    until_it_falls(run, "abort")
    run.fails("abort")
    run.taken_over()

    assert run.history.strategy == CPU.strategy
    assert until_it_falls(run, "abort").fallback == 4


BF16 = Strategy(precision="bf16")


def test_only_options_that_ran_here_with_the_same_command_follow() -> None:
    pace = Pace(steps=9, seconds=3.0, rate=3.0, low=2.0, high=4.0, starting=1.0)
    options = (
        Option(number=1, id="gpu", title="GPU", basis=Basis.TRIAL, strategy=FIRST, pace=pace),
        Option(number=2, id="variant-small", title="small", basis=Basis.TRIAL, variant="small"),
        Option(
            number=3, id="cpu", title="CPU", basis=Basis.TRIAL, strategy=CPU.strategy, pace=pace
        ),
        Option(number=5, id="cpu+bf16", title="bf16", basis=Basis.TRIAL, strategy=BF16),
        Option(number=4, id="wsl2", title="WSL2", basis=Basis.ESTIMATE),
    )
    plan = Plan(
        rocsteady="0", made=0.0, command=("python",), folder="/f", software="", total=9, left=9,
        options=options,
    )  # fmt: skip

    follow = (Fallback(number=3, title="CPU", strategy=CPU.strategy, rate=3.0),)
    assert [options_after(plan, number) for number in (1, 2, 3, 9)] == [follow, (), (), ()]
