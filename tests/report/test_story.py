"""The story of a run: how it is, what happened, what to do, what it cost."""

from __future__ import annotations

from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from msgspec.structs import replace
from sample_run import AT, bucket, crashed, facts, hang, intent, record, story, unfinished

from rocsteady.doctor.knowledge.values import Fix, Step
from rocsteady.model import (
    Certainty,
    Failure,
    FailureKind,
    Fingerprint,
    Forecast,
    IntentKind,
    Next,
    Outcome,
    RunEvent,
    RunOutcome,
    Strategy,
)
from rocsteady.report.pages import render_markdown
from rocsteady.report.plot_points import POINTS, gauge, in_attempts, rates
from rocsteady.report.read_run import of_run
from rocsteady.report.story import (
    Action,
    IncidentEvidence,
    RunFacts,
    State,
    Tone,
    build_story,
    ended_thread,
    story_document,
)
from rocsteady.screens.runs import render_summary
from rocsteady.screens.screen import Page
from rocsteady.store.run_account import costs_of
from rocsteady.store.values import AttemptResult, Gauge, MessageRecord, NamedFailure, RunRecord
from tests import values

if TYPE_CHECKING:
    from tests.conftest import Expected

EXPECTED = Path(__file__).parent / "expected"


@pytest.mark.parametrize(
    ("outcome", "state", "tone", "action"),
    [
        (RunOutcome.DONE, State.DONE, Tone.OK, Action.FIX_SCRIPT),
        (RunOutcome.STOPPED, State.STOPPED, Tone.WARNING, Action.RESUME),
        (RunOutcome.NOT_DONE, State.FAILED, Tone.BAD, Action.FIX_CAUSE),
        (RunOutcome.SUPERVISOR_FAILED, State.FAILED, Tone.BAD, Action.FIX_CAUSE),
        (RunOutcome.NONE, State.INTERRUPTED, Tone.WARNING, Action.RESUME),
    ],
)
def test_each_end_has_a_state_and_something_to_do(
    outcome: RunOutcome, state: State, tone: Tone, action: Action
) -> None:
    told = story(outcome)

    assert (told.state, told.tone, told.next_step.action) == (state, tone, action)
    resume = "" if action is Action.FIX_SCRIPT else "rocsteady run --resume calm-otter"
    assert told.next_step.command == resume


def test_a_run_in_progress_warns_while_an_incident_is_open() -> None:
    going_on = build_story(RunFacts(at=AT, record=unfinished(), is_running=True))
    hung = replace(unfinished(), attempts=record().attempts[:1], decisions=(), failures=())
    handling = build_story(RunFacts(at=AT, record=hung, is_running=True))

    assert (going_on.state, going_on.tone) == (State.RUNNING, Tone.OK)
    assert (handling.state, handling.tone) == (State.RUNNING, Tone.WARNING)
    assert going_on.next_step.command == "rocsteady watch calm-otter"


def test_a_run_without_an_end_is_in_progress_only_while_it_is_supervised() -> None:
    going_on = build_story(RunFacts(at=AT, record=unfinished(), is_running=True))
    killed = build_story(RunFacts(at=AT, record=unfinished()))

    assert going_on.attempts[1].in_progress
    assert not killed.attempts[1].in_progress
    assert killed.attempts[1].end == "cut off: rocsteady was killed"


def test_a_total_of_something_else_is_not_a_number_of_steps() -> None:
    epochs = build_story(facts(progress=(bucket(1, 3, total=10),)))

    assert (story().steps, epochs.steps) == (800, 400)
    assert "of 1,000" in story().happened
    assert "of 10" not in epochs.happened


def test_an_attempt_has_its_settings_its_end_and_what_came_next() -> None:
    first, second = story(decided="unset-variable").attempts

    assert first.settings == "A=waiting for a lock"
    assert first.failure is not None
    assert (first.end, first.ended_well) == ("hung", False)
    assert first.decision == "Restarted with unset-variable."
    assert (second.settings, second.ended_well, second.failure) == ("unchanged", True, None)


def test_an_attempt_is_cut_where_it_made_its_first_and_its_last_step() -> None:
    whole = record()
    *before, last = whole.progress[:5]
    late = (*before, replace(last, last_progress=1281.0), *whole.progress[5:])
    first, second = build_story(facts(progress=late)).attempts

    assert [(each.kind, each.begin, each.end) for each in first.segments] == [
        ("training", 1000.0, 1281.0),
        ("stalled", 1281.0, 1290.0),
        ("restarting", 1290.0, 1301.0),
    ]
    assert [(each.kind, each.begin, each.end) for each in second.segments] == [
        ("starting", 1301.0, 1360.0),
        ("training", 1360.0, 1600.0),
    ]


def test_a_hang_before_the_first_step_and_a_pause_have_segments() -> None:
    whole = record()
    pause = intent(IntentKind.PAUSE, attempt=2, at=1400.0, ended=1420.0, outcome="continued")
    first, second = build_story(facts(progress=whole.progress[5:], intents=(pause,))).attempts

    assert [(each.kind, each.begin, each.end) for each in first.segments] == [
        ("starting", 1000.0, 1281.0),
        ("stalled", 1281.0, 1290.0),
        ("restarting", 1290.0, 1301.0),
    ]
    assert second.segments[-1].kind == "paused"


def test_a_script_that_failed_was_not_stalled() -> None:
    crash = replace(record().attempts[0], outcome=Outcome.BY_ITSELF, exit_code=1, signal=None)
    first, _ = build_story(facts(incidents=(), attempts=(crash, record().attempts[1]))).attempts

    assert [each.kind for each in first.segments] == ["training", "restarting"]


def test_what_helped_can_be_kept() -> None:
    helped = replace(record().attempts[1], strategy=Strategy(workers=0))
    changed = record(decided="loader-inline")
    told = build_story(
        RunFacts(at=AT, record=replace(changed, attempts=(changed.attempts[0], helped)))
    )

    assert told.next_step.action is Action.KEEP_CHANGE
    assert told.next_step.command.startswith("rocsteady run --with loader-inline -- python")
    assert helped.strategy.workers == 0
    assert told.attempts[1].settings == "num_workers=0"


def test_the_same_hang_is_one_group() -> None:
    twice = replace(hang(2, attempt=2), at=1500.0)
    failures = record().failures
    again = replace(failures[0], attempt=2)
    elsewhere = replace(hang(3, attempt=2), place="train.py:99 main")
    told = build_story(
        facts(
            incidents=(*record().incidents, twice, elsewhere),
            failures=(*failures, again),
        )
    )

    numbers = [
        [each.incident.number for each in group.troubles if each.incident]
        for group in told.troubles
    ]
    assert numbers == [[1, 2], [3]]
    assert [each.incident.number for each in told.incidents if each.incident] == [1, 2, 3]


def test_what_went_wrong_has_its_evidence_the_advice_and_the_effect() -> None:
    fix = Fix(text="Give the container more.", commands=("df -h /dev/shm",))
    (group,) = build_story(replace(facts(), advice={"hang-in-script": fix})).troubles

    trouble = group.first
    assert trouble.failure == record().failures[0].failure
    assert trouble.advice == fix
    assert trouble.waits == ("the training thread waiting for a lock",)
    assert trouble.evidence == ".rocsteady/runs/waiting for a lock"  # from the project on
    assert trouble.effect
    assert trouble.last_step == 500


def test_a_failure_without_an_incident_is_told_too() -> None:
    (group,) = build_story(facts(incidents=())).troubles

    assert group.first.incident is None
    assert group.first.failure == record().failures[0].failure


def test_the_name_of_an_exception_is_left_as_it_is() -> None:
    (named,) = record().failures[:1]
    seen = ("torch.OutOfMemoryError: HIP out of memory",)
    failure = replace(named.failure, kind="script-error", seen=seen, line="")
    shown = facts(incidents=(), failures=(replace(named, failure=failure),))

    assert build_story(shown).troubles[0].title.startswith("torch.OutOfMemoryError")


def test_of_a_long_proof_the_first_and_the_last_line_are_shown() -> None:
    waits = ("the training thread waits for a pipe", *(f"thread {n} waits" for n in range(6)), "so")
    told = build_story(replace(facts(), evidence=(IncidentEvidence(incident=1, waits=waits),)))

    assert told.incidents[0].waits == (waits[0], waits[-1])
    assert told.incidents[0].more_waits == waits[1:-1]


def test_a_source_that_is_an_issue_has_an_address() -> None:
    told = build_story(facts(text="ROCm/TheRock#12"))

    address = "https://github.com/ROCm/TheRock/issues/12"
    assert told.incidents[0].sources == (("ROCm/TheRock#12", address),)
    assert story().incidents[0].sources == (("waiting for a lock", ""),)


def test_a_crash_of_the_machine_is_no_reason_to_start_again() -> None:
    told = build_story(RunFacts(at=AT, record=crashed(2)))

    assert told.next_step.action is Action.AVOID_CRASH
    assert told.next_step.command == "rocsteady run --resume calm-otter --again"
    assert told.attempts[1].end == "cut off: the machine crashed"


def test_a_crash_that_nothing_followed_is_lost_time_and_no_training() -> None:
    alone = replace(crashed(1), progress=record().progress[:2])
    told = build_story(RunFacts(at=AT, record=alone, crash="Power or heat."))

    assert told.steps == 200
    assert told.costs.idle == 1600.0 - 1119.0
    assert [group.first.crash for group in told.troubles] == ["Power or heat."]


def test_an_error_in_the_script_is_to_be_fixed_there() -> None:
    error = Failure(
        kind=FailureKind.SCRIPT_ERROR, title="Error in the script", words="",
        certainty=Certainty.CERTAIN, fingerprint=Fingerprint(kind="script-error"),
        seen=("KeyError: 'loss'",), line="train.py:6 in main",
    )  # fmt: skip
    failed = replace(
        record(outcome=RunOutcome.NOT_DONE),
        failures=(NamedFailure(run=1, attempt=2, failure=error, evidence="", at=1599.0),),
    )

    step = build_story(RunFacts(at=AT, record=failed)).next_step

    assert step.action is Action.FIX_SCRIPT
    assert "train.py:6 in main" in step.text


def test_why_rocsteady_gave_up_is_named() -> None:
    assert "waiting for a lock" in story(RunOutcome.NOT_DONE, after=Next.END).next_step.text
    assert "waiting for a lock" not in story(RunOutcome.NOT_DONE).next_step.text


ENDED = """\
2026-11-18T07:45:37.591Z Epoch [3/6], Loss: 0.3462
2026-11-18T07:45:42.714Z Exception in thread Thread-4 (fill):
2026-11-18T07:45:42.714Z Traceback (most recent call last):
2026-11-18T07:45:42.719Z   File "/usr/lib/python3.11/threading.py", line 982, in run
2026-11-18T07:45:42.719Z     self._target(*self._args, **self._kwargs)
2026-11-18T07:45:42.719Z   File "/home/me/train.py", line 27, in fill
2026-11-18T07:45:42.719Z     raise RuntimeError("bad sample")
2026-11-18T07:45:42.719Z RuntimeError: bad sample
2026-11-18T07:45:53.789Z rocsteady: stopped this attempt: hung
"""


def test_a_thread_that_ended_is_named_with_its_line() -> None:
    assert ended_thread(ENDED) == "RuntimeError: bad sample at train.py:27 in fill"
    assert ended_thread("Epoch 1\n") == ""
    assert ended_thread("Exception in thread Thread-4:\n") == ""


def test_injected_faults_and_changed_settings_are_named() -> None:
    message = MessageRecord(
        run=1, text="faults are injected: ROCSTEADY_FAULTS is set", event=RunEvent.FAULTS, at=1.0
    )
    last = replace(record().attempts[1], strategy=Strategy(worker_context="forkserver"))
    told = build_story(facts(messages=(message,), attempts=(record().attempts[0], last)))

    assert "injected" in told.happened
    assert "multiprocessing_context=forkserver" in told.happened


def test_of_a_try_that_runs_nobody_knows_yet_whether_its_settings_help() -> None:
    last = replace(
        record().attempts[1], strategy=Strategy(workers=0), ended=None, exit_code=None, last_step=0
    )
    run = replace(unfinished(), attempts=(record().attempts[0], last))

    told = build_story(RunFacts(at=AT, record=run, is_running=True))

    assert "It goes on with num_workers=0." in told.happened
    assert "did not help" not in told.happened


def test_a_rank_that_was_killed_is_named_and_no_line_of_its_launcher() -> None:
    line = "E1120 00:13:35 1479 api.py:1002] failed (exitcode: -9) local_rank: 1"
    first = record().failures[0]
    ended = replace(
        first.failure, kind="killed", title="The process was killed (SIGKILL)", seen=(line,), rank=1
    )
    told = build_story(facts(incidents=(), failures=(replace(first, failure=ended),)))

    assert [group.title for group in told.troubles] == ["Rank 1 was killed (SIGKILL)"]
    assert "It failed: rank 1 was killed (SIGKILL)." in told.happened


def test_advice_has_the_command_of_the_run_and_is_no_advice_to_use_rocsteady() -> None:
    first = Step(text="Use it.", commands=("rocsteady run -- python train.py",))
    then = Step(text="Try this.", commands=("rocsteady run --with cpu -- python train.py",))
    run = replace(record().run, command=("python", "hang.py", "--big"))

    found = of_run(Fix(text=first.text, commands=first.commands, then=(then,)), run)

    assert (found.text, found.commands) == (
        "Try this.",
        ("rocsteady run --with cpu -- python hang.py --big",),
    )


def test_what_somebody_ended_has_no_cause_to_be_fixed() -> None:
    first = record().failures[0]
    asked = replace(first.failure, kind="interrupted")
    attempts = record().attempts[:1]
    failed = record(outcome=RunOutcome.NOT_DONE, after=Next.END)
    failed = replace(
        failed, attempts=attempts, incidents=(), failures=(replace(first, failure=asked),)
    )

    step = build_story(RunFacts(at=AT, record=failed)).next_step

    assert (step.action, step.text) == (Action.RESUME, "To resume the run:")


def test_what_is_kept_is_the_change_that_is_in_force_and_not_a_restart_after_it() -> None:
    """A restart by fresh-process changes no setting."""
    attempts = record().attempts
    unset = Strategy(variables={"A": None})
    tries = (
        replace(attempts[0], strategy=Strategy()),
        replace(attempts[0], number=2, strategy=unset),
        replace(attempts[1], number=3, strategy=unset),
    )
    decisions = (
        values.decided("unset-variable"),
        values.decided("fresh-process", attempt=2),
    )
    told = build_story(facts(attempts=tries, decisions=decisions, incidents=()))

    assert told.next_step.action is Action.KEEP_CHANGE
    assert told.next_step.command == "unset A"


def test_what_to_do_differs_if_the_run_starts_from_the_beginning() -> None:
    resumes = build_story(RunFacts(at=AT, record=unfinished()))
    restarts = build_story(RunFacts(at=AT, record=unfinished(), resumes=False))

    assert resumes.next_step.command == "rocsteady run --resume calm-otter"
    assert restarts.next_step.command.startswith("rocsteady run --resume never -- python train.py")
    assert resumes.next_step.text != restarts.next_step.text


def test_the_same_failure_is_told_once_and_what_prevents_it_is_said_at_the_end() -> None:
    first = record().failures[0]
    full = replace(first.failure, kind="disk-full", title="The disk is full", seen=("no space",))
    twice = tuple(replace(first, attempt=number, failure=full) for number in (1, 2))
    fix = Fix(text="Free some space.")
    told = build_story(replace(facts(incidents=(), failures=twice), advice={"disk-full": fix}))

    [group] = told.troubles
    assert [row[1] for row in group.rows] == ["500", "1,000"]
    assert "The disk is full" in group.title
    assert told.next_step.action is Action.FIX_CAUSE
    assert fix.text in told.next_step.text
    assert "(2 times)" in render_markdown(told)


def test_a_deadline_is_met_or_not() -> None:
    assert build_story(facts()).met == ""
    assert build_story(facts(deadline=2000.0)).met != build_story(facts(deadline=1500.0)).met


def test_of_a_run_in_progress_the_expected_end_counts() -> None:
    ahead = Forecast(at=7200.0, early=3600.0, late=10800.0, rate=1.0, left=9, failures=0.0)
    running = replace(unfinished(), deadline=9000.0, forecast=ahead)
    told = build_story(RunFacts(at=AT, record=running, is_running=True))

    assert told.met


def test_times_that_no_calendar_has_break_nothing() -> None:
    ahead = Forecast(at=1e18, early=1e18, late=float("inf"), rate=1.0, left=9, failures=0.0)
    told = build_story(RunFacts(at=AT, record=replace(unfinished(), deadline=1e18, forecast=ahead)))

    assert "Deadline: -" in render_markdown(told)


def test_what_was_not_measured_is_listed() -> None:
    with_loss, without = story(), build_story(facts(progress=()))

    assert set(with_loss.unknown) < set(without.unknown)


def test_the_costs_add_up() -> None:
    costs = costs_of(record(), AT)

    assert costs.whole == 600.0
    assert (costs.idle, costs.redone, costs.starting) == (20.0, 6.0, 0.0)
    assert costs.useful == 574.0
    assert sum(seconds for _, seconds in costs.shares) == costs.whole


def test_a_pause_is_neither_a_slow_step_nor_training() -> None:
    before = bucket(1, 0, last_step=60, last_progress=1060.0)
    after = bucket(1, 10, first_step=60, last_step=120, last_progress=1660.0)
    pause = intent(IntentKind.PAUSE, attempt=1, at=1060.0, ended=1600.0, outcome="continued")

    (line,) = rates([before, after], [pause])

    assert [point.mean for point in line] == [1.0]
    costs = costs_of(replace(record(), intents=(pause,)), AT)
    assert (costs.paused, costs.useful) == (540.0, 574.0 - 540.0)


def test_a_long_run_is_thinned_and_keeps_its_peaks() -> None:
    buckets = [bucket(1, minute) for minute in range(20_000)]
    buckets[777] = bucket(1, 777, gauges={"loss": Gauge(least=-5.0, most=99.0, mean=1.0, count=1)})
    (line,) = gauge(buckets, "loss")

    assert len(line) <= POINTS
    assert max(point.most for point in line) == 99.0
    assert min(point.least for point in line) == -5.0
    assert len(rates(buckets)[0]) <= POINTS


def test_a_rate_is_of_the_time_in_which_steps_were_made() -> None:
    late = bucket(2, 7, first_step=0, last_step=300, first_progress=1465.0, last_progress=1475.0)
    after = bucket(2, 8, first_step=300, last_step=900, last_progress=1535.0)

    (line,) = rates([late, after])

    assert [point.mean for point in line] == [10.0]


def test_what_is_measured_is_drawn_in_its_attempt() -> None:
    early = bucket(2, 5, first_progress=None, last_progress=None)  # begins before attempt 2 does
    late = bucket(1, 4, first_progress=None, last_progress=None, width=600)

    first, second = in_attempts([late, early], record().attempts)

    assert (first.start, first.start + first.width) == (1240.0, 1300.0)
    assert (second.start, second.start + second.width) == (1301.0, 1360.0)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e308, -1e308])
def test_numbers_that_cannot_be_plotted_are_left_out(value: float) -> None:
    odd = Gauge(least=-value, most=value, mean=value, count=1)
    odds = (
        bucket(1, 1, gauges={"loss": odd}, seconds_in={"data": value}),
        bucket(1, 2, gauges={"grad": odd}),
    )

    told = build_story(facts(progress=odds))

    assert [plot.title for plot in told.plots] == ["Steps per second"]
    assert dict(told.phases) == {"backward": 40.0, "data": 10.0}


def test_the_text_and_the_markdown_are_as_expected(expected: Expected) -> None:
    fix = Fix(text="Give the container more.", commands=("df -h /dev/shm",))
    told = build_story(replace(facts(deadline=2000.0), advice={"hang-in-script": fix}))

    screen = render_summary(told, page=Page(80, colour=False), zone=UTC)

    expected(EXPECTED / "run.md", render_markdown(told))
    expected(EXPECTED / "run.txt", screen)
    assert len(screen.splitlines()) <= 24
    assert max(map(len, screen.splitlines())) <= 80


def test_json_has_the_record_and_what_it_comes_to() -> None:
    document = story_document(story())

    assert msgspec.convert(document, RunRecord) == record()
    assert document["state"] == "done"
    assert document["next_step"] == {
        "action": "fix the script", "text": story().next_step.text, "command": "",
    }  # fmt: skip


def test_in_markdown_what_others_wrote_loads_mentions_and_closes_nothing() -> None:
    hostile = "bad ![x](https://a.example/b.png) <img src=x> @octocat fixes #1\n# BIG `x` | y"

    page = render_markdown(build_story(facts(text=hostile)))

    quoted = [line for line in page.splitlines() if "<img" in line]
    assert quoted
    for line in quoted:
        assert line.startswith("    ") or line.count("``") >= 2, line
    assert not any(line.startswith("# BIG") for line in page.splitlines())


@pytest.mark.parametrize("set_by", [86_400.0, 3e9, -3e9])
def test_a_clock_that_is_set_meanwhile_makes_no_run_longer(set_by: float) -> None:
    """It took 4 s by the clock of the supervisor, whatever the wall clock says."""
    (attempt, *_) = record().attempts
    attempt = replace(
        attempt, ended=attempt.started + 4.0 + set_by, result=AttemptResult(seconds=4.0)
    )
    run = replace(record().run, ended=attempt.started + 5.0 + set_by)

    story = build_story(facts(attempts=(attempt,), run=run))

    assert " 5.0 s" in story.happened or " 4.0 s" in story.happened
    assert story.attempts[0].cells[3] == "4.0 s"
