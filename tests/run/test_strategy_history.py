"""What is remembered of a run: a change that brought the script further, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from rocsteady.doctor.machine.machine import software_of
from rocsteady.failures.ladder import RemedyChoice
from rocsteady.hangs.judgment.phase_history import PhaseHistory
from rocsteady.model import (
    Certainty,
    Failure,
    Fingerprint,
    Observation,
    Outcome,
    ProbeOutcome,
    Strategy,
)
from rocsteady.run.attempt.attempt_end import AttemptEnd
from rocsteady.run.options import RunOptions
from rocsteady.run.recovery.recovery import propose
from rocsteady.run.recovery.strategy_history import StrategyHistory
from rocsteady.store.location import find_place
from rocsteady.store.machine_history import Memory
from rocsteady.store.values import Run

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
    outcome=Outcome.HUNG, exit=None, seconds=9.0, progress_seconds=5.0, first_step=1, last_step=25,
    wrote_checkpoint=True, found=None, learned=PhaseHistory(), processes=(1,),
)  # fmt: skip
HUNG = Failure(
    kind="hang-in-loader",
    title="",
    words="",
    certainty=Certainty.CERTAIN,
    fingerprint=Fingerprint(kind="hang-in-loader", step=25),
    seen=(),
)


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    return Memory(find_place(tmp_path, state=tmp_path / "state"))


def strategies(
    recorded: Recorded, memory: Memory, options: RunOptions | None = None
) -> StrategyHistory:
    return StrategyHistory(
        options or RunOptions(),
        script="s",
        here="m",
        memory=memory,
        knowledge=recorded.knowledge,
        machine=lambda: recorded.machine("no-amd-gpu"),
        variables={},
    )


def answer(strategies: StrategyHistory, failed: Failure, end: AttemptEnd, run: Run) -> RemedyChoice:
    strategies.failed(failed, end, run)
    situation = strategies.situation(failed, end, can_resume=True, checkpoints=1)
    proposal = propose(situation)
    strategies.take(proposal, failed.kind)
    return proposal


def test_a_change_with_which_it_came_further_is_remembered(
    recorded: Recorded, memory: Memory
) -> None:
    climbing = strategies(recorded, memory)
    steps = [answer(climbing, HUNG, END, RUN) for _ in range(3)]
    climbing.ended(msgspec.structs.replace(END, last_step=120), RUN)
    memory.close()

    (helped,) = memory.what_helped("m", "s")
    assert steps[0].remedy == "retry"
    assert (helped.failure, helped.remedy) == ("hang-in-loader", steps[-1].remedy)
    assert helped.remedy != "retry"


def test_the_same_again_is_not_a_change(recorded: Recorded, memory: Memory) -> None:
    climbing = strategies(recorded, memory)
    step = answer(climbing, HUNG, END, RUN)
    climbing.ended(msgspec.structs.replace(END, last_step=120), RUN)
    memory.close()

    assert step.remedy == "retry"
    assert memory.what_helped("m", "s") == ()


def test_what_was_asked_for_answered_no_failure(recorded: Recorded, memory: Memory) -> None:
    asked = strategies(recorded, memory, RunOptions(start_with=("loader-inline",)))
    asked.start()
    asked.ended(END, RUN)
    memory.close()

    assert memory.what_helped("m", "s") == ()


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
    climbing = strategies(recorded, memory)

    step = answer(climbing, HUNG, END, RUN)
    memory.close()

    assert step.remedy == "loader-inline"


def test_a_newer_checkpoint_is_progress_where_the_script_prints_no_count(
    recorded: Recorded, memory: Memory
) -> None:
    history = strategies(recorded, memory)

    def ended(start: str, saves: tuple[int, ...] = (10,), over: str = "") -> bool:
        end = msgspec.structs.replace(
            END, confirmed=False, start=start, saves=saves, started_over=over
        )
        return history.ended(end, RUN)

    assert ended("step-30")
    assert ended("step-60")
    assert not ended("step-60")
    assert not ended("step-90", saves=())
    assert not ended("step-99", over="its loss is that of a first step")
