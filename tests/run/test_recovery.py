"""What comes after an attempt. A restart never costs what the user already has."""

from __future__ import annotations

import msgspec
import pytest

from rocsteady.doctor.knowledge.values import Fix
from rocsteady.failures.ladder import RemedyChoice
from rocsteady.hangs.judgment.phase_history import PhaseHistory
from rocsteady.model import Next, Outcome, Strategy
from rocsteady.run.attempt.attempt_end import AttemptEnd
from rocsteady.run.options import RunOptions
from rocsteady.run.recovery.recovery import (
    Decision,
    History,
    base_decision,
    exit_code,
    joined,
    recover,
)
from rocsteady.system.child_end import Exit

CRASHED = AttemptEnd(
    outcome=Outcome.BY_ITSELF,
    exit=Exit(code=1),
    seconds=60.0,
    progress_seconds=50.0,
    first_step=1,
    last_step=500,
    wrote_checkpoint=False,
    found=None,
    learned=PhaseHistory(),
    processes=(1,),
)


def end(**changes: object) -> AttemptEnd:
    return msgspec.structs.replace(CRASHED, **changes)


def chosen(
    attempt: AttemptEnd,
    *,
    number: int = 1,
    can_resume: bool = False,
    options: RunOptions | None = None,
) -> tuple[Next, int]:
    options = options or RunOptions(no_remedies=True)
    decision = base_decision(attempt, options, attempts=number, can_resume=can_resume)
    return decision.next, decision.code


def test_success_ends_the_run() -> None:
    assert chosen(end(exit=Exit(code=0))) == (Next.END, 0)


def test_what_was_terminated_at_exit_needs_a_person_unless_its_criteria_are_met() -> None:
    assert chosen(end(outcome=Outcome.AT_EXIT, exit=Exit(signal=15))) == (Next.END, 76)


@pytest.mark.parametrize("outcome", [Outcome.HUNG, Outcome.AT_EXIT, Outcome.UNKILLABLE])
def test_exit_code_0_of_what_rocsteady_killed_is_no_success(outcome: Outcome) -> None:
    decision = base_decision(
        end(outcome=outcome, exit=Exit(code=0)),
        RunOptions(no_remedies=True),
        attempts=4,
        can_resume=False,
    )

    assert decision.code != 0


def test_a_crash_that_lost_little_is_tried_again() -> None:
    assert chosen(end())[0] is Next.AGAIN


@pytest.mark.parametrize("changes", [{"progress_seconds": 601.0}, {"wrote_checkpoint": True}])
def test_real_progress_is_not_thrown_away_unasked(changes: dict[str, object]) -> None:
    assert chosen(end(**changes)) == (Next.END, 1)
    assert chosen(end(outcome=Outcome.HUNG, exit=None, **changes)) == (Next.END, 76)
    scratch = RunOptions(from_scratch=True)
    assert chosen(end(**changes), options=scratch)[0] is Next.AGAIN_FROM_SCRATCH


def test_where_no_checkpoint_is_whole_it_counts_how_much_was_made() -> None:
    cut = end(wrote_checkpoint=True, all_cut_off=True)
    assert chosen(cut)[0] is Next.AGAIN
    assert chosen(msgspec.structs.replace(cut, progress_seconds=601.0))[0] is Next.END


def test_a_script_that_can_resume_goes_on() -> None:
    assert chosen(end(wrote_checkpoint=True), can_resume=True)[0] is Next.AGAIN
    assert chosen(end(outcome=Outcome.HUNG, exit=None), can_resume=True)[0] is Next.AGAIN


def test_attempts_have_an_end_and_say_whether_a_person_is_needed() -> None:
    hung = end(outcome=Outcome.HUNG, exit=Exit(signal=9))
    limit = RunOptions(max_attempts=2)
    assert chosen(hung, number=2, can_resume=True, options=limit) == (Next.END, 75)
    assert chosen(hung, number=2, options=limit) == (Next.END, 76)
    assert chosen(end(exit=Exit(code=7)), number=2, options=limit) == (Next.END, 7)


def test_nothing_is_started_beside_what_cannot_be_killed() -> None:
    assert chosen(end(outcome=Outcome.UNKILLABLE, exit=None), can_resume=True) == (Next.END, 76)


def test_observing_never_restarts() -> None:
    assert chosen(end(), options=RunOptions(observe=True)) == (Next.END, 1)


@pytest.mark.parametrize("code", [0, 1, 130])
def test_after_the_user_stopped_it_there_is_no_attempt_and_the_code_is_the_scripts(
    code: int,
) -> None:
    stopped = end(outcome=Outcome.STOPPED, exit=Exit(code=code))

    assert chosen(stopped, can_resume=True) == (Next.END, code)


def test_exit_codes_are_as_a_shell_says_them() -> None:
    assert exit_code(end(exit=Exit(code=42))) == 42
    assert exit_code(end(exit=Exit(signal=11))) == 139
    assert exit_code(end(exit=None)) == 76


PERSON = Fix(text="Free some space.")


@pytest.mark.parametrize(
    ("step", "kind", "attempts", "code"),
    [
        (RemedyChoice(strategy=None, why="own"), "script-error", 3, 7),
        (RemedyChoice(strategy=None, why="own", person=PERSON), "script-error", 1, 7),
        (RemedyChoice(strategy=None, why="not known"), "unknown", 2, 7),
        (RemedyChoice(strategy=None, why="nothing to try"), "segfault", 1, 7),
        (RemedyChoice(strategy=None, why="gave up"), "segfault", 2, 76),
        (RemedyChoice(strategy=None, why="full", person=PERSON), "disk-full", 1, 76),
    ],
)
def test_giving_up_is_a_code_of_ours_and_the_rest_the_scripts(
    step: RemedyChoice, kind: str, attempts: int, code: int
) -> None:
    plain = Decision(next=Next.AGAIN, why="it can", code=7)
    decision = joined(plain, step, kind=kind, attempts=attempts)
    assert (decision.next, decision.code, decision.why) == (Next.END, code, step.why)


def test_the_ladder_does_not_overrule_what_may_not_be_thrown_away() -> None:
    step = RemedyChoice(strategy=Strategy(workers=0), remedy="loader-inline", why="No workers.")
    precious = Decision(next=Next.END, why="it would throw work away", code=1)
    again = Decision(next=Next.AGAIN, why="it can", code=1)

    assert joined(precious, step, kind="hang-in-loader", attempts=1) == precious
    found = joined(again, step, kind="hang-in-loader", attempts=1)
    assert (found.next, found.remedy, found.why) == (Next.AGAIN, "loader-inline", "No workers.")


STUCK = History(attempts=3, is_stuck=True, from_one_start=3)
AGAIN = Decision(next=Next.AGAIN, why="it can resume", code=1)


def test_too_many_attempts_from_one_checkpoint_end_the_run() -> None:
    decision = recover(AGAIN, CRASHED, STUCK)

    assert (decision.next, decision.code) == (Next.END, 76)


def test_ranks_that_other_hosts_replaced_start_again() -> None:
    assert chosen(end(outcome=Outcome.REPLACED))[0] is Next.AGAIN


def test_that_the_gpu_failed_is_handed_on() -> None:
    assert recover(AGAIN, CRASHED, History(attempts=1, gpu_failed=True)).gpu_failed
    assert not recover(AGAIN, CRASHED, History(attempts=1)).gpu_failed
