"""A run falls to the next option of its plan: when, to which, and when not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from rocsteady.failures.ladder import RemedyChoice
from rocsteady.hangs.judgment.phase_history import PhaseHistory
from rocsteady.model import Certainty, Failure, Fingerprint, Outcome, Strategy
from rocsteady.plan.saved_plan import options_after
from rocsteady.plan.values import Basis, Option, Pace, Plan
from rocsteady.run.attempt.attempt_end import AttemptEnd
from rocsteady.run.options import Fallback, RunOptions
from rocsteady.run.recovery.recovery import propose
from rocsteady.run.recovery.strategy_history import StrategyHistory
from rocsteady.store.forecast import fell_after
from rocsteady.store.location import find_place
from rocsteady.store.machine_history import Memory
from rocsteady.store.values import (
    AttemptRecord,
    Deadly,
    DecisionRecord,
    NamedFailure,
    Run,
    RunRecord,
)

if TYPE_CHECKING:
    from tests.conftest import Recorded

RUN = Run(
    id=1,
    name="calm-otter",
    command=("python",),
    job={},
    strategy=Strategy(),
    folder="/r",
    machine="m",
    boot_id="b",
    process="",
    started=0.0,
)
END = AttemptEnd(
    outcome=Outcome.BY_ITSELF, exit=None, seconds=9.0, progress_seconds=5.0, first_step=1,
    last_step=25, wrote_checkpoint=True, found=None, learned=PhaseHistory(), processes=(1,),
)  # fmt: skip
FIRST = Strategy(attention="math")
CPU = Fallback(number=2, title="CPU, 2 threads", strategy=Strategy(device="cpu"), rate=2.0)
SLOW = Fallback(number=4, title="one GPU", strategy=Strategy(gpus=(0,)), rate=8.0)


def failure(kind: str) -> Failure:
    return Failure(
        kind=kind,
        title="",
        words="",
        certainty=Certainty.CERTAIN,
        fingerprint=Fingerprint(kind=kind, step=25),
        seen=(),
    )


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    return Memory(find_place(tmp_path, state=tmp_path / "state"))


def strategies(
    recorded: Recorded, memory: Memory | None = None, *options: Fallback
) -> StrategyHistory:
    return StrategyHistory(
        RunOptions(strategy=FIRST, fallbacks=options or (CPU, SLOW)),
        script="s",
        here="m",
        memory=memory,
        knowledge=recorded.knowledge,
        machine=lambda: recorded.machine("no-amd-gpu"),
        variables={},
    )


def answer(  # as the supervisor does it
    strategies: StrategyHistory,
    failed: Failure,
    end: AttemptEnd,
    run: Run,
    needs: float | None = None,
) -> RemedyChoice:
    strategies.failed(failed, end, run)
    situation = strategies.situation(failed, end, can_resume=True, checkpoints=1)
    proposal = propose(
        situation,
        strategies.open_fallbacks(),
        blamed=strategies.is_option_to_blame(failed),
        needs=needs,
    )
    strategies.take(proposal, failed.kind)
    return proposal


def fails(
    climbing: StrategyHistory, kind: str, steps: int = 25, needs: float | None = None
) -> RemedyChoice:
    end = msgspec.structs.replace(END, last_step=steps)
    return answer(climbing, failure(kind), end, RUN, needs)


def until_it_falls(climbing: StrategyHistory, kind: str) -> RemedyChoice:
    for _ in range(20):
        step = fails(climbing, kind)
        if step.strategy is None or step.remedy.startswith("option-"):
            return step
    raise AssertionError("it never ends")


def test_a_run_starts_with_the_strategy_of_its_option(recorded: Recorded) -> None:
    assert strategies(recorded).start() is None
    assert strategies(recorded).strategy == FIRST


def test_remedies_come_first_then_the_options_in_their_order_and_then_it_ends(
    recorded: Recorded,
) -> None:
    climbing = strategies(recorded)

    assert fails(climbing, "abort").remedy == "retry"
    one = until_it_falls(climbing, "abort")
    assert fails(climbing, "abort").remedy == "retry"  # the new option has the whole ladder
    two = until_it_falls(climbing, "abort")
    three = until_it_falls(climbing, "abort")

    assert one == RemedyChoice(
        strategy=CPU.strategy,
        remedy="option-2",
        fallback=2,
        why="No workarounds are left; falling back to option 2 of the plan: CPU, 2 threads.",
    )
    assert (two.remedy, two.strategy, three.strategy) == ("option-4", SLOW.strategy, None)
    assert climbing.fallbacks == ()


@pytest.mark.parametrize("kind", ["script-error", "disk-error", "gpu-overheated", "device-assert"])
def test_what_no_option_mends_ends_it(recorded: Recorded, kind: str) -> None:
    climbing = strategies(recorded)

    assert fails(climbing, kind).strategy is None
    assert climbing.fallbacks == (CPU, SLOW)


def test_an_option_on_which_the_script_does_not_start_is_passed_over(recorded: Recorded) -> None:
    climbing = strategies(recorded)
    until_it_falls(climbing, "abort")

    step = fails(climbing, "script-error", steps=0)

    assert step.remedy == "option-4"
    assert step.why == "This option does not work; falling back to option 4 of the plan: one GPU."


def test_the_scripts_own_error_later_on_an_option_is_its_own(recorded: Recorded) -> None:
    climbing = strategies(recorded)
    until_it_falls(climbing, "abort")

    assert fails(climbing, "script-error", steps=90).strategy is None


def test_what_was_tried_or_took_the_machine_down_is_never_fallen_to(
    recorded: Recorded, memory: Memory
) -> None:
    same = msgspec.structs.replace(CPU, number=3, strategy=FIRST)
    back = msgspec.structs.replace(CPU.strategy, checkpoints_back=1)
    memory.killed(Deadly(machine="m", script="s", strategy=back, command="python", at=1.0))
    memory.flush()

    step = until_it_falls(strategies(recorded, memory, same, CPU, SLOW), "abort")
    memory.close()

    assert step.remedy == "option-4"


def test_a_first_option_that_took_the_machine_down_is_fallen_from_at_once(
    recorded: Recorded, memory: Memory
) -> None:
    memory.killed(Deadly(machine="m", script="s", strategy=FIRST, command="python", at=1.0))
    memory.flush()
    climbing = strategies(recorded, memory)

    step = climbing.start()
    memory.close()

    assert step is not None
    assert step.strategy is not None
    assert climbing.strategy != FIRST


def test_a_gpu_that_took_the_machine_down_is_not_fallen_to_with_other_settings(
    recorded: Recorded, memory: Memory
) -> None:
    memory.killed(Deadly(machine="m", script="s", strategy=Strategy(), command="", at=1.0))
    memory.flush()
    climbing = strategies(recorded, memory, SLOW, CPU)
    memory.close()

    assert until_it_falls(climbing, "abort").remedy == "option-2"  # past SLOW, which is a GPU


def test_an_option_that_is_fallen_to_is_no_remedy_that_helped(
    recorded: Recorded, memory: Memory
) -> None:
    climbing = strategies(recorded, memory)
    until_it_falls(climbing, "abort")
    climbing.ended(msgspec.structs.replace(END, last_step=120), RUN)
    memory.close()

    assert memory.what_helped("m", "s") == ()


def test_a_restart_takes_the_first_option_that_is_in_time_where_this_one_is_not(
    recorded: Recorded,
) -> None:
    climbing = strategies(recorded)

    step = fails(climbing, "abort", needs=5.0)

    assert (step.remedy, step.strategy) == ("option-4", SLOW.strategy)
    assert step.why == (
        "At this pace the run misses the deadline; switching to option 4 of the plan, which would"
        " be on time: one GPU."
    )
    assert climbing.fallbacks == (CPU,)  # slower, and still better than to give up


@pytest.mark.parametrize("needs", [None, 9.0])
def test_no_option_is_taken_for_a_deadline_that_none_meets(
    recorded: Recorded, needs: float | None
) -> None:
    assert fails(strategies(recorded), "abort", needs=needs).remedy == "retry"


def test_an_error_of_the_script_is_not_hurried_past(recorded: Recorded) -> None:
    assert fails(strategies(recorded), "script-error", needs=1.0).strategy is None


def story(*attempts: tuple[int, Strategy], fell: int) -> RunRecord:
    return RunRecord(
        run=RUN,
        attempts=tuple(
            AttemptRecord(run=1, number=number, strategy=with_, boot_id="b", started=1.0)
            for number, with_ in attempts
        ),
        incidents=(),
        failures=tuple(
            NamedFailure(
                run=1, attempt=number, failure=failure("abort"), evidence="",
                at=1.0,
            )
            for number, _ in attempts
        ),
        decisions=(
            DecisionRecord(run=1, attempt=1, what="retry", why="", at=1.0),
            DecisionRecord(run=1, attempt=fell, what="option-2", why="", at=2.0),
        ),
        messages=(),
        intents=(),
        progress=(),
        losses=(),
        seconds_lost=0.0,
    )  # fmt: skip


def test_a_run_that_was_left_goes_on_with_the_option_that_it_fell_to(recorded: Recorded) -> None:
    left = story((1, FIRST), (2, FIRST), fell=2)
    climbing = strategies(recorded)

    climbing.resume(left)

    assert fell_after(left.decisions) == 2
    assert climbing.strategy == CPU.strategy  # decided, and not yet begun
    assert climbing.fallbacks == (SLOW,)
    assert fails(climbing, "abort").remedy == "retry"


def test_the_attempts_on_the_option_that_it_fell_to_count(recorded: Recorded) -> None:
    climbing = strategies(recorded)

    climbing.resume(story((1, FIRST), (2, FIRST), (3, CPU.strategy), fell=2))

    assert climbing.strategy == CPU.strategy
    assert until_it_falls(climbing, "abort").remedy == "option-4"


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
