"""The page of a run tells why attempts ended and what was changed."""

from __future__ import annotations

import msgspec

from rocsteady.hangs.blame import Blame, RankRecord, Sign
from rocsteady.model import Certainty, Failure, Fingerprint, Role, RunOutcome, RunState, Strategy
from rocsteady.report.markdown_report import render_story
from rocsteady.report.run_report import RunReport
from rocsteady.store.values import (
    AttemptRecord,
    DecisionRecord,
    Forecast,
    Incident,
    MessageRecord,
    NamedFailure,
    Run,
    RunStory,
)

FAILURE = Failure(
    kind="oom-fragmentation",
    title="Out of device memory, in pieces",
    words="Much memory is reserved and not used.",
    certainty=Certainty.CERTAIN,
    fingerprint=Fingerprint(kind="oom-fragmentation"),
    seen=("HIP out of memory. | ```",),
    also=(("peer-died", Role.CASCADE),),
    traceback="Traceback\n  in step",
    sources=("pytorch/pytorch#175431",),
)


def story(**changes: object) -> RunStory:
    run = Run(
        id=1,
        name="calm-otter",
        command=("python", "train.py"),
        job={},
        strategy=Strategy(),
        folder="/r",
        machine="m",
        boot_id="b",
        process="",
        started=0.0,
        ended=9.0,
        outcome=RunOutcome.DONE,
    )
    told = RunStory(
        run=run,
        attempts=(
            AttemptRecord(run=1, number=1, strategy=Strategy(), boot_id="b", started=1.0),
            AttemptRecord(
                run=1,
                number=2,
                strategy=Strategy(workers=0, variables={"A": None, "B": "1"}),
                boot_id="b",
                started=2.0,
            ),
        ),
        incidents=(),
        failures=(NamedFailure(run=1, attempt=1, failure=FAILURE, evidence="/e", at=1.5),),
        decisions=(DecisionRecord(run=1, attempt=1, what="unset-variable", why="a | b", at=1.6),),
        messages=(),
        intents=(),
        progress=(),
        losses=(),
        seconds_lost=3.0,
    )
    return msgspec.structs.replace(told, **changes)


def told(at: float = 60.0, **changes: object) -> str:
    return render_story(RunReport(at=at, story=story(**changes)))


def test_attempts_say_what_was_changed_why_they_failed_and_what_came_next() -> None:
    lines = told().splitlines()
    first, second = (line for line in lines if line.startswith(("| 1 |", "| 2 |")))

    assert "unchanged" in first
    assert "oom-fragmentation | Restarted the run with unset-variable. A \\| b. |" in first
    assert "workers=0, A unset, B=1" in second


def test_a_failure_is_told_with_what_it_rests_on() -> None:
    page = told()

    assert "### Attempt 1: Out of device memory, in pieces (oom-fragmentation)" in page
    assert "Much memory is reserved and not used. This identification is certain." in page
    assert "    HIP out of memory. | ```\n" in page
    assert "    Traceback\n      in step\n" in page
    assert "- also seen: peer-died (cascade)" in page
    assert "- sources: pytorch/pytorch#175431" in page
    assert "- evidence: `/e`" in page


def test_a_deadline_is_told_with_the_end() -> None:
    assert "Deadline 1970-01-01 00:05:00 UTC: done 4 min 51 s before the deadline." in told(
        deadline=300.0
    )
    failed = msgspec.structs.replace(story().run, outcome=RunOutcome.NOT_DONE)
    assert "Deadline 1970-01-01 00:05:00 UTC: not done." in told(deadline=300.0, run=failed)
    assert "Deadline" not in told()


def test_a_run_that_goes_on_is_told_with_when_it_will_be_done() -> None:
    ahead = Forecast(at=7200.0, early=3600.0, late=10800.0, rate=1.0, left=9, failures=0.0)
    running = msgspec.structs.replace(story().run, ended=None, outcome=RunOutcome.NONE)

    page = told(run=running, deadline=9000.0, forecast=ahead)

    assert (
        "Finishes about Thu 1 Jan 02:00, deadline Thu 1 Jan 02:30: 30 min to spare (may be late);"
        " between Thu 1 Jan 01:00 and Thu 1 Jan 03:00 with 90 % probability (UTC)." in page
    )
    assert "Deadline 1970-01-01 00:05:00 UTC." in told(run=running, deadline=300.0)


def test_what_others_wrote_loads_mentions_and_closes_nothing() -> None:
    hostile = "bad ![x](https://a.example/b.png) <img src=x> @octocat fixes #1\n# BIG"
    message = MessageRecord(run=1, text=f"error in the script: ValueError: {hostile} `x`", at=1.0)

    line = next(each for each in told(messages=(message,)).splitlines() if "BIG" in each)

    assert line.startswith("- 1970-01-01 00:00:01 UTC `` error in the script")
    assert line.endswith("# BIG `x` ``")


def test_a_killed_run_says_so_first_and_how_to_resume() -> None:
    killed = msgspec.structs.replace(story().run, ended=None, outcome=RunOutcome.NONE)

    lines = told(run=killed).splitlines()

    assert lines[0] == "# Run calm-otter: interrupted"
    assert lines[2].startswith("The run is not finished; its supervisor is no longer running.")
    assert lines[4] == "What to do next: To resume the run: `rocsteady run --resume calm-otter`"


def test_times_that_no_calendar_has_break_nothing() -> None:
    ahead = Forecast(at=1e18, early=1e18, late=float("inf"), rate=1.0, left=9, failures=0.0)
    running = msgspec.structs.replace(story().run, ended=None, outcome=RunOutcome.NONE)

    assert "Deadline" not in told(run=running, forecast=ahead)
    assert "Deadline -" in told(run=running, deadline=1e18)


def test_what_to_do_says_if_a_run_starts_again_from_the_beginning() -> None:
    killed = story(run=msgspec.structs.replace(story().run, ended=None, outcome=RunOutcome.NONE))

    page = render_story(RunReport(at=60.0, story=killed, resumes=False))

    assert (
        "What to do next: To start again, from the beginning (rocsteady does not know how the"
        " script resumes): `rocsteady run --resume calm-otter`" in page
    )


def test_an_incident_names_the_rank_that_holds_up_the_others() -> None:
    incident = Incident(
        run=1,
        attempt=1,
        number=1,
        verdict=RunState.HUNG,
        why="no step for 9 s",
        place="",
        quiet=9.5,
        evidence="",
        at=5.0,
        blame=Blame(sign=Sign.STEP, why="rank 3 reached step 7", ranks=(RankRecord(rank=3),)),
    )

    assert "Ranks: rank 3 reached step 7." in told(incidents=(incident,))
