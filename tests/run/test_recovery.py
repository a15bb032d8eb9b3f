"""What comes after an attempt. A restart never costs what the user already has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from rocsteady.model import Next, Outcome, Strategy
from rocsteady.run.options import RunOptions
from rocsteady.run.recovery.decision import base_decision, exit_code
from rocsteady.store.values import AttemptRecord, AttemptResult
from rocsteady.system.child_end import Exit
from tests.run.lived import Lived
from tests.values import failure

if TYPE_CHECKING:
    from tests.conftest import Recorded

CRASHED = AttemptRecord(
    run=1, number=1, strategy=Strategy(), boot_id="b", started=0.0, ended=60.0, exit_code=1,
    outcome=Outcome.BY_ITSELF, last_step=500, result=AttemptResult(progress_seconds=50.0),
)  # fmt: skip


def end(**changes: Any) -> AttemptRecord:  # noqa: ANN401 - fields of AttemptRecord
    return msgspec.structs.replace(CRASHED, **changes)


def came_of_it(**changes: Any) -> AttemptRecord:  # noqa: ANN401 - fields of AttemptResult
    return end(result=AttemptResult(**{"progress_seconds": 50.0, **changes}))


def chosen(
    attempt: AttemptRecord,
    *,
    number: int = 1,
    can_resume: bool = False,
    options: RunOptions | None = None,
) -> tuple[Next, int]:
    options = options or RunOptions(no_remedies=True)
    decision = base_decision(attempt, options, attempts=number, can_resume=can_resume)
    return decision.next, decision.code


def test_success_ends_the_run() -> None:
    assert chosen(end(exit_code=0)) == (Next.END, 0)


def test_what_was_terminated_at_exit_needs_a_person_unless_its_criteria_are_met() -> None:
    assert chosen(end(outcome=Outcome.AT_EXIT, exit_code=None, signal=15)) == (Next.END, 76)


@pytest.mark.parametrize("outcome", [Outcome.HUNG, Outcome.AT_EXIT, Outcome.UNKILLABLE])
def test_exit_code_0_of_what_rocsteady_killed_is_no_success(outcome: Outcome) -> None:
    decision = base_decision(
        end(outcome=outcome, exit_code=0),
        RunOptions(no_remedies=True),
        attempts=4,
        can_resume=False,
    )

    assert decision.code != 0


def test_a_crash_that_lost_little_is_tried_again() -> None:
    assert chosen(end())[0] is Next.AGAIN


@pytest.mark.parametrize("changes", [{"progress_seconds": 601.0}, {"wrote_checkpoint": True}])
def test_real_progress_is_not_thrown_away_unasked(changes: dict[str, object]) -> None:
    precious = came_of_it(**changes)
    hung = msgspec.structs.replace(precious, outcome=Outcome.HUNG, exit_code=None)
    assert chosen(precious) == (Next.END, 1)
    assert chosen(hung) == (Next.END, 76)
    scratch = RunOptions(from_scratch=True)
    assert chosen(precious, options=scratch)[0] is Next.AGAIN_FROM_SCRATCH


def test_where_no_checkpoint_is_whole_it_counts_how_much_was_made() -> None:
    cut = came_of_it(wrote_checkpoint=True, all_cut_off=True)
    assert chosen(cut)[0] is Next.AGAIN
    assert (
        chosen(came_of_it(wrote_checkpoint=True, all_cut_off=True, progress_seconds=601.0))[0]
        is Next.END
    )


def test_a_script_that_can_resume_goes_on() -> None:
    assert chosen(came_of_it(wrote_checkpoint=True), can_resume=True)[0] is Next.AGAIN
    assert chosen(end(outcome=Outcome.HUNG, exit_code=None), can_resume=True)[0] is Next.AGAIN


def test_attempts_have_an_end_and_say_whether_a_person_is_needed() -> None:
    hung = end(outcome=Outcome.HUNG, exit_code=None, signal=9)
    limit = RunOptions(max_attempts=2)
    assert chosen(hung, number=2, can_resume=True, options=limit) == (Next.END, 75)
    assert chosen(hung, number=2, options=limit) == (Next.END, 76)
    assert chosen(end(exit_code=7), number=2, options=limit) == (Next.END, 7)


def test_nothing_is_started_beside_what_cannot_be_killed() -> None:
    assert chosen(end(outcome=Outcome.UNKILLABLE, exit_code=None), can_resume=True) == (
        Next.END,
        76,
    )


def test_observing_never_restarts() -> None:
    assert chosen(end(), options=RunOptions(observe=True)) == (Next.END, 1)


@pytest.mark.parametrize("code", [0, 1, 130])
def test_after_the_user_stopped_it_there_is_no_attempt_and_the_code_is_the_scripts(
    code: int,
) -> None:
    stopped = end(outcome=Outcome.STOPPED, exit_code=code)

    assert chosen(stopped, can_resume=True) == (Next.END, code)


def test_exit_codes_are_as_a_shell_says_them() -> None:
    assert exit_code(Outcome.BY_ITSELF, Exit(code=42)) == 42
    assert exit_code(Outcome.BY_ITSELF, Exit(signal=11)) == 139
    assert exit_code(Outcome.BY_ITSELF, None) == 76


@pytest.mark.parametrize(
    ("kinds", "code"),
    [
        (("killed", "killed", "script-error"), 7),
        (("device-assert",), 76),
        (("abort",), 7),  # nothing was tried: before its first step
        (("killed", "abort"), 76),
        (("disk-error",), 76),
    ],
)
def test_giving_up_is_a_code_of_ours_and_the_rest_the_scripts(
    recorded: Recorded, kinds: tuple[str, ...], code: int
) -> None:
    lived = Lived(recorded)
    decisions = [lived.fails(kind, 0, code=7) for kind in kinds]

    assert (decisions[-1].next, decisions[-1].code) == (Next.END, code)


def test_a_way_to_resume_that_could_not_be_observed_is_not_denied(recorded: Recorded) -> None:
    unseen = Lived(recorded, can_resume=False, unseen=True).fails(
        "bus-error", wrote_checkpoint=True
    )
    denied = Lived(recorded, can_resume=False).fails("bus-error", wrote_checkpoint=True)

    assert unseen.next is denied.next is Next.END
    assert unseen.code == denied.code
    assert unseen.why != denied.why


def test_the_ladder_does_not_overrule_what_may_not_be_thrown_away(recorded: Recorded) -> None:
    throws = Lived(recorded, can_resume=False).fails("hang-in-loader", wrote_checkpoint=True)
    again = Lived(recorded).fails("hang-in-loader", wrote_checkpoint=True)

    assert (throws.next, throws.remedy, throws.strategy) == (Next.END, "", Strategy())
    assert (again.next, again.remedy) == (Next.AGAIN, "retry")


def test_what_could_not_be_loaded_and_was_moved_aside_is_no_reason_to_end(
    recorded: Recorded,
) -> None:
    run = Lived(recorded)
    run.fails("killed", 25, made=25)
    run.ends(failure("checkpoint-corrupt"), None, base=10)

    assert run.decides(cleared=True).next is Next.AGAIN


def test_ranks_that_other_hosts_replaced_start_again() -> None:
    assert chosen(end(outcome=Outcome.REPLACED))[0] is Next.AGAIN


def test_that_the_gpu_failed_is_handed_on(recorded: Recorded) -> None:
    assert Lived(recorded).fails("gpu-reset").gpu_failed
    assert not Lived(recorded).fails("killed").gpu_failed


def test_an_error_of_the_script_is_the_last_word(recorded: Recorded) -> None:
    decision = Lived(recorded).fails("script-error", 0)

    assert decision.own_error
    assert decision.why == f"{decision.own_error}; not retried"
