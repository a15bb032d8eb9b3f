"""The page of a run: one file, no script but our own, and all of it there without one."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser

import pytest
from msgspec.structs import replace

from rocsteady.doctor.knowledge.values import Fix
from rocsteady.hangs.blame import Blame, Sign
from rocsteady.model import (
    Certainty,
    Failure,
    Fingerprint,
    IntentKind,
    Outcome,
    RunOutcome,
    RunState,
    Strategy,
)
from rocsteady.report.markup import tag
from rocsteady.report.run_page import render_page
from rocsteady.report.run_report import (
    IncidentProof,
    RunReport,
    costs_of,
    next_step,
    state_of,
    summary,
)
from rocsteady.report.series import MOST_POINTS, gauge, in_attempts, rates
from rocsteady.screens.summary_screen import render_summary
from rocsteady.screens.watch_series import step_times
from rocsteady.store.values import (
    AttemptCost,
    AttemptRecord,
    Bucket,
    DecisionRecord,
    Fate,
    Gauge,
    Incident,
    Intent,
    MessageRecord,
    NamedFailure,
    Run,
    RunStory,
)

HOSTILE = "<script>alert(1)</script>\x1b[31m\u202e&\"'"


def bucket(attempt: int, minute: int, **options: object) -> Bucket:
    start = 1000.0 + 60 * minute
    fields: dict[str, object] = {
        "run": 1, "attempt": attempt, "start": start, "width": 60, "first_step": 100 * minute,
        "last_step": 100 * minute + 100, "total": 1000, "first_progress": start,
        "last_progress": start + 59, "quiet": 1.0, "seconds_in": {"backward": 40.0, "data": 10.0},
        "seconds_as": {}, "gauges": {"loss": Gauge(least=0.1, most=0.9, mean=0.5, count=3)},
        **options,
    }  # fmt: skip
    return Bucket(**fields)  # type: ignore[arg-type] # as the test says


def story(
    *,
    outcome: RunOutcome = RunOutcome.DONE,
    words: str = "waiting for a lock",
    decided: str = "retry",
) -> RunStory:
    run = Run(
        id=1, name="calm-otter", command=("python", "train.py", words), job={}, strategy=Strategy(),
        folder="", machine="m", boot_id="b", process="p", started=1000.0,
        ended=None if outcome is RunOutcome.NONE else 1600.0, outcome=outcome,
    )  # fmt: skip
    failure = Failure(
        kind="hang-in-script", title=f"Hung in {words}", words=words, certainty=Certainty.CERTAIN,
        fingerprint=Fingerprint(kind="hang-in-script"), seen=(words,), sources=(words,),
    )  # fmt: skip
    return RunStory(
        run=run,
        attempts=(
            AttemptRecord(run=1, number=1, strategy=Strategy(variables={"A": words}), boot_id="b",
                          started=1000.0, ended=1300.0, signal=9, last_step=500,
                          outcome=Outcome.HUNG),
            AttemptRecord(run=1, number=2, strategy=Strategy(), boot_id="b", started=1301.0,
                          ended=1600.0, exit_code=0, outcome=Outcome.BY_ITSELF, last_step=1000),
        ),
        incidents=(Incident(run=1, attempt=1, number=1, verdict=RunState.HUNG, why=words, at=1290.0,
                            place=f"train.py:31 {words}", quiet=9.0, evidence=f"/x/{words}",
                            blame=Blame(sign=Sign.WAIT, why=f"rank 1 is {words}", number=1)),),
        failures=(NamedFailure(run=1, attempt=1, failure=failure, evidence="", at=1299.0),),
        decisions=(DecisionRecord(run=1, attempt=1, what=decided, why=words, at=1300.0),),
        messages=(MessageRecord(run=1, text=words, at=1300.0),),
        intents=(),
        progress=(*(bucket(1, minute) for minute in range(5)), bucket(2, 6), bucket(2, 7)),
        losses=(AttemptCost(attempt=1, idle=20.0, steps_redone=10, redoing=6.0),),
        seconds_lost=26.0,
    )  # fmt: skip


def report(
    outcome: RunOutcome = RunOutcome.DONE,
    words: str = "waiting for a lock",
    decided: str = "retry",
) -> RunReport:
    return RunReport(
        at=2000.0,
        story=story(outcome=outcome, words=words, decided=decided),
        variables={"HSA_ENABLE_SDMA": words},
        proofs=(IncidentProof(incident=1, waits=(f"the training thread {words}",), stacks=words),),
        log_tail=words,
    )


class Elements(HTMLParser):
    """Collects the elements, and fails if one is closed that is not open."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"script", "style"} & set(self.open):
            self.words += data


@pytest.mark.parametrize("seconds", [None, 5])
def test_the_page_is_well_formed_and_asks_no_other_host(seconds: int | None) -> None:
    page = render_page(report(), reload_after=seconds)
    elements = Elements(page)
    assert sum(name == "script" for name, _ in elements.seen) == 1
    for name, attributes in elements.seen:
        assert not {"src", "href", "onclick", "onload", "action"} & attributes.keys(), name
    assert "http" not in page.replace("http-equiv", "")


def test_only_our_own_script_may_run() -> None:
    page = render_page(report())
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = next(each["content"] for _, each in Elements(page).seen if "http-equiv" in each) or ""
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert {part.split()[0] for part in policy.split(";") if part.strip()} == {
        "default-src",
        "style-src",
        "script-src",
        "base-uri",
        "form-action",
    }


def test_what_others_wrote_is_text() -> None:
    page = render_page(report(words=HOSTILE))
    elements = Elements(page)
    assert sum(name == "script" for name, _ in elements.seen) == 1
    assert "alert(1)" in elements.words
    assert "\x1b" not in page
    assert "\u202e" not in page


def test_the_five_questions_are_answered_without_a_script() -> None:
    words = Elements(render_page(report())).words
    for answer in (
        "The run finished (800 of 1,000 steps) in 10 min.",  # what happened
        "Cause: hung in waiting for a lock",  # why
        "What was done: Restarted the run. Waiting for a lock.",
        "Attempt 2 ended normally at step 1,000.",
        "detecting failures and restarting",  # what it cost
        "20 s",
        "Next: No action needed. The run is done.",  # what to do
        "train.py:31",
        "The training thread waiting for a lock",
        "not confirmed any of this on AMD hardware",
    ):
        assert answer in words, answer


def test_plots_show_the_range_and_the_incidents() -> None:
    page = render_page(report())
    assert "Loss: 0.1 to 0.9, last 0.5" in page
    assert "Steps per second: 1.67<" in page
    assert page.count('class="mark"') >= 3  # on the timeline and on each plot


def test_a_state_for_every_end() -> None:
    assert state_of(report()) == ("done", "ok")
    assert state_of(report(outcome=RunOutcome.STOPPED))[0] == "stopped"
    assert state_of(report(outcome=RunOutcome.NOT_DONE))[0] == "failed"
    assert state_of(report(outcome=RunOutcome.NONE))[0] == "interrupted"
    assert "--resume calm-otter" in next_step(report(outcome=RunOutcome.NONE))[1]
    gave_up = next_step(report(outcome=RunOutcome.NOT_DONE, decided="end"))[0]
    assert "rocsteady stopped trying: waiting for a lock." in gave_up
    assert "stopped trying" not in next_step(report(outcome=RunOutcome.NOT_DONE))[0]
    assert "without finishing" in summary(report(outcome=RunOutcome.NOT_DONE))


def test_the_costs_add_up() -> None:
    costs = costs_of(story(), 2000.0)
    assert costs.whole == 600.0
    assert (costs.idle, costs.redone, costs.starting) == (20.0, 6.0, 0.0)
    assert costs.useful == 574.0


def test_a_long_run_is_thinned_and_keeps_its_peaks() -> None:
    buckets = [bucket(1, minute) for minute in range(20_000)]
    buckets[777] = bucket(1, 777, gauges={"loss": Gauge(least=-5.0, most=99.0, mean=1.0, count=1)})
    (line,) = gauge(buckets, "loss")
    assert len(line) <= MOST_POINTS
    assert max(point.most for point in line) == 99.0
    assert min(point.least for point in line) == -5.0
    assert len(rates(buckets)[0]) <= MOST_POINTS


def test_a_rate_is_of_the_time_in_which_steps_were_made() -> None:
    late = bucket(2, 7, first_step=0, last_step=300, first_progress=1465.0, last_progress=1475.0)
    after = bucket(2, 8, first_step=300, last_step=900, last_progress=1535.0)

    (line,) = rates([late, after])

    assert [point.mean for point in line] == [10.0]


def test_a_pause_is_neither_a_slow_step_nor_training() -> None:
    before = bucket(1, 0, last_step=60, last_progress=1060.0)
    after = bucket(1, 10, first_step=60, last_step=120, last_progress=1660.0)
    pause = Intent(
        id=1,
        run=1,
        attempt=1,
        kind=IntentKind.PAUSE,
        what="",
        machine="",
        boot_id="",
        process="",
        at=1060.0,
        outcome="continued",
        ended=1600.0,
    )

    (line,) = rates([before, after], [pause])

    assert [point.mean for point in line] == [1.0]
    assert step_times([before, after], [pause]) == (1.0,)
    costs = costs_of(replace(story(), intents=(pause,)), 2000.0)
    assert (costs.paused, costs.useful) == (540.0, 574.0 - 540.0)


def test_a_crash_of_the_machine_is_named_first() -> None:
    start = Intent(
        id=1,
        run=1,
        attempt=2,
        kind=IntentKind.START,
        what="",
        machine="",
        boot_id="",
        process="",
        at=1.0,
        outcome=Fate.MACHINE_WENT_DOWN.value,
        ended=2.0,
    )
    told = report(outcome=RunOutcome.NOT_DONE)
    told = replace(told, story=replace(told.story, intents=(start,)))

    assert "The machine crashed during attempt 2. 2 attempts" in summary(told)
    assert next_step(told)[1] == "rocsteady run --resume calm-otter --again"


def test_a_crash_that_nothing_followed_is_lost_time_and_no_training() -> None:
    whole = story(outcome=RunOutcome.NOT_DONE)
    cut = replace(whole.attempts[0], ended=None, outcome=RunOutcome.NONE, last_step=None)
    start = Intent(
        id=1,
        run=1,
        attempt=1,
        kind=IntentKind.START,
        what="",
        machine="",
        boot_id="",
        process="",
        at=1.0,
        outcome=Fate.MACHINE_WENT_DOWN.value,
        ended=2.0,
    )
    alone = replace(
        whole,
        attempts=(cut,),
        incidents=(),
        failures=(),
        decisions=(),
        losses=(),
        intents=(start,),
        seconds_lost=0.0,
        progress=whole.progress[:2],
    )
    made = RunReport(at=2000.0, story=alone)

    assert "(at least 200 steps)" in summary(made)
    assert summary(made).endswith("The machine crashed during attempt 1.")
    assert costs_of(alone, 2000.0).idle == 1600.0 - 1119.0
    assert "attempt 1 (A=waiting for a lock) was cut off: the machine crashed" in render_page(made)


def test_what_is_measured_is_drawn_in_its_attempt() -> None:
    early = bucket(2, 5, first_progress=None, last_progress=None)  # begins before attempt 2 does
    late = bucket(1, 4, first_progress=None, last_progress=None, width=600)

    first, second = in_attempts([late, early], story().attempts)

    assert (first.start, first.start + first.width) == (1240.0, 1300.0)
    assert (second.start, second.start + second.width) == (1301.0, 1360.0)


def test_injected_faults_and_changed_settings_are_named() -> None:
    plain = story()
    told = MessageRecord(
        run=1, text="faults are injected into this run: ROCSTEADY_FAULTS is set.", at=1.0
    )
    last = replace(plain.attempts[1], strategy=Strategy(worker_context="forkserver"))
    changed = replace(plain, messages=(told,), attempts=(plain.attempts[0], last))
    made = RunReport(at=2000.0, story=changed)

    assert summary(made).startswith("Faults were injected into this run on purpose.")
    assert "It finished with changed settings: worker_context=forkserver." in next_step(made)[0]


def test_a_source_that_is_an_issue_is_a_link() -> None:
    page = render_page(report(words="ROCm/TheRock#12"))

    assert 'href="https://github.com/ROCm/TheRock/issues/12"' in page


def test_the_screen_fits_80_by_24() -> None:
    screen = render_summary(report(), width=80, colour=False)
    assert len(screen.splitlines()) <= 24
    assert max(map(len, screen.splitlines())) <= 80
    assert "hung at train.py:31" in screen


def test_attributes_are_escaped() -> None:
    assert tag("p", class_='"><b') == '<p class="&quot;&gt;&lt;b"></p>'
    assert tag("p", None, "a", hidden=True, id=None) == "<p hidden>a</p>"


def test_an_attempt_without_an_end_is_in_progress_only_while_the_run_is() -> None:
    whole = story(outcome=RunOutcome.NONE)
    last = replace(whole.attempts[1], ended=None, outcome=RunOutcome.NONE, exit_code=None)
    cut = replace(whole, attempts=(whole.attempts[0], last))

    assert "(unchanged) is in progress" in render_page(
        RunReport(at=2000.0, story=cut, is_running=True)
    )
    assert "(unchanged) was cut off: rocsteady was killed" in render_page(
        RunReport(at=2000.0, story=cut)
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e308, -1e308])
def test_numbers_that_cannot_be_plotted_are_left_out(value: float) -> None:
    odd = Gauge(least=-value, most=value, mean=value, count=1)
    shown = report()
    odds = (
        bucket(1, 1, gauges={"loss": odd}, seconds_in={"data": value}),
        bucket(1, 2, gauges={"grad": odd}),
    )

    page = render_page(replace(shown, story=replace(shown.story, progress=odds)))

    assert not re.search(r"\b(nan|inf)\b", page)
    assert "Backward" in page or "backward" in page


def test_a_long_proof_shows_its_first_and_last_sentence_and_folds_the_rest() -> None:
    waits = ("the training thread waits for a pipe", *(f"thread {n} waits" for n in range(6)), "so")

    page = render_page(replace(report(), proofs=(IncidentProof(incident=1, waits=waits),)))

    assert "<li>The training thread waits for a pipe</li><li>So</li>" in page.replace("\n", "")
    assert "<summary>6 other threads that wait</summary>" in page
    assert "thread 5 waits" in page


def test_an_incident_names_the_rank_that_holds_up_the_others() -> None:
    assert "<strong>Ranks: </strong>rank 1 is waiting for a lock." in render_page(report())


def test_every_cell_of_a_wide_table_says_its_column_where_it_is_stacked() -> None:
    page = render_page(report())

    assert '<div class="scroll stack" tabindex="0" role="region" aria-label="Attempts">' in page
    assert '<td role="cell" data-head="settings">unchanged</td>' in page
    assert '<td role="cell" data-head="then">Restarted the run without changes</td>' in page


def test_what_is_written_on_a_plot_is_not_stretched_with_it() -> None:
    page = render_page(report())

    assert 'preserveAspectRatio="none"' in page
    assert '<span style="left:40%" class="x">4 min</span>' in page
    assert '<span style="top:50.0%" class="y">0.5</span>' in page
    assert '<span style="left:48.33%" class="number">1</span>' in page


def test_the_time_has_its_unit_and_goodput_its_meaning() -> None:
    words = Elements(render_page(report())).words

    assert "Goodput, the share spent training: 96 %." in words
    assert "detecting failures and restarting 20 s (3 %)" in words
    assert "paused by the user" not in words


@pytest.mark.parametrize(
    ("deadline", "said"),
    [
        (2000.0, "1970-01-01 00:33:20 UTC (done 6 min 40 s before the deadline)"),
        (1500.0, "1970-01-01 00:25:00 UTC (done 100 s late)"),
    ],
)
def test_a_deadline_says_whether_it_was_met(deadline: float, said: str) -> None:
    made, failed = report(), report(outcome=RunOutcome.NOT_DONE)

    assert "(not done)" in render_page(replace(failed, story=replace(failed.story, deadline=1.0)))
    assert said in render_page(replace(made, story=replace(made.story, deadline=deadline)))


def test_what_a_person_can_do_is_said_where_it_is_known() -> None:
    fix = Fix(text="Give the container more.", commands=("df -h /dev/shm",))

    words = Elements(render_page(replace(report(), advice={"hang-in-script": fix}))).words

    assert "What you can do: Give the container more. df -h /dev/shm" in words


def test_evidence_is_named_from_the_project_on() -> None:
    made = report()
    (hung,) = made.story.incidents
    here = replace(hung, evidence="/home/x/job/.rocsteady/runs/calm-otter/incident-1")

    page = render_page(replace(made, story=replace(made.story, incidents=(here,))))

    assert "<code>.rocsteady/runs/calm-otter/incident-1</code>" in page
    assert "/home/x" not in page


def test_only_a_page_that_is_followed_reloads_itself() -> None:
    refresh = '<meta http-equiv="refresh" content="5"/>'
    assert refresh in render_page(report(), reload_after=5)
    assert 'http-equiv="refresh"' not in render_page(report())


def test_an_open_incident_is_in_the_summary_and_the_state_warns() -> None:
    whole = story(outcome=RunOutcome.NONE)
    cut = replace(whole, attempts=whole.attempts[:1], decisions=(), failures=())
    made = RunReport(at=2000.0, story=cut, is_running=True)

    assert state_of(made) == ("running", "warning")
    assert "Incident 1, hung at train.py:31 waiting for a lock, is being handled." in summary(made)
    assert state_of(RunReport(at=2000.0, story=whole, is_running=True)) == ("running", "ok")


def test_a_crash_of_the_machine_is_explained_and_not_tried_again() -> None:
    whole = story(outcome=RunOutcome.NOT_DONE)
    start = Intent(
        id=1,
        run=1,
        attempt=1,
        kind=IntentKind.START,
        what="",
        machine="",
        boot_id="",
        process="",
        at=1.0,
        outcome=Fate.MACHINE_WENT_DOWN.value,
        ended=2.0,
    )
    alone = replace(
        whole,
        attempts=whole.attempts[:1],
        incidents=(),
        failures=(),
        decisions=(),
        intents=(start,),
    )
    words = Elements(render_page(RunReport(at=2000.0, story=alone, crash="Power or heat."))).words

    assert "The machine crashed during attempt 1Power or heat." in words
    assert "What was done: rocsteady does not start the same settings again on its own." in words
