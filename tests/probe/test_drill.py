"""What is said of a fault, from what the run left behind."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rocsteady.model import IntentKind, Next, Outcome, RunOutcome, Strategy
from rocsteady.probe.drill import (
    Fault,
    Fired,
    LossSeen,
    for_inside,
    not_tried,
    read_faults,
    read_fired,
    results,
)
from rocsteady.probe.values import FaultResult
from rocsteady.store.values import (
    AttemptRecord,
    DecisionRecord,
    Intent,
    NamedFailure,
    Run,
    RunRecord,
)
from tests import values
from tests.values import failure


def attempt(number: int, last_step: int, *, ended: float = 0.0) -> AttemptRecord:
    fields = {"run": 1, "strategy": Strategy(), "boot_id": "b", "started": 0.0}
    return AttemptRecord(number=number, last_step=last_step, ended=ended, **fields)  # type: ignore[arg-type]


def failed(number: int, kind: str) -> NamedFailure:
    return NamedFailure(run=1, attempt=number, failure=failure(kind), evidence="", at=0.0)


def decided(number: int, remedy: str = "", after: Next = Next.AGAIN) -> DecisionRecord:
    return values.decided(remedy, attempt=number, next=after)


def verdict(number: int, at: float) -> Intent:
    unread: dict[str, Any] = dict.fromkeys(("what", "machine", "boot_id", "process"), "")
    return Intent(id=1, run=1, attempt=number, kind=IntentKind.KILL, at=at, **unread)


def story(*records: object, outcome: RunOutcome = RunOutcome.NOT_DONE) -> RunRecord:
    """Return the story of a run with these records."""
    unread: dict[str, Any] = dict.fromkeys(("folder", "machine", "boot_id", "process"), "")
    empty: dict[str, Any] = dict.fromkeys(("incidents", "messages", "progress", "losses"), ())
    run = Run(id=1, name="drill", command=("python",), job={}, strategy=Strategy(), started=0.0,
              outcome=outcome, **unread)  # fmt: skip
    return RunRecord(
        run=run,
        attempts=tuple(each for each in records if isinstance(each, AttemptRecord)),
        failures=tuple(each for each in records if isinstance(each, NamedFailure)),
        decisions=tuple(each for each in records if isinstance(each, DecisionRecord)),
        intents=tuple(each for each in records if isinstance(each, Intent)),
        seconds_lost=0.0,
        **empty,
    )


def fired(number: int, step: int, at: float = 10.0) -> Fired:
    return Fired(at=at, step=step, run=f"drill-77-{number}")


def test_a_hang_is_seen_by_its_verdict_and_a_crash_by_its_end() -> None:
    told = results(
        read_faults("hang:backward@20,kill@50"),
        {0: fired(1, 20), 1: fired(2, 50, at=30.0)},
        story(
            attempt(1, 19, ended=27.0),
            attempt(2, 49, ended=30.5),
            attempt(3, 60),
            failed(1, "hang-in-backward"),
            failed(2, "killed"),
            decided(1, "retry"),
            decided(2, "fresh-process"),
            verdict(1, 19.5),
        ),
        went_on_from={1: 0, 2: 15, 3: 0},
        losses={},
    )

    assert told == (
        FaultResult(
            fault="hang:backward@20",
            fired=True,
            step=20,
            attempt=1,
            seen_after=9.5,
            called="hang-in-backward",
            done="retried without changes",
            went_on_from=15,
            survived=True,
        ),
        FaultResult(
            fault="kill@50",
            fired=True,
            step=50,
            attempt=2,
            seen_after=0.5,
            called="killed",
            done="fresh-process",
            went_on_from=0,
            survived=True,
        ),
    )


def test_a_run_that_does_not_come_further_has_not_survived() -> None:
    (told,) = results(
        read_faults("kill@50"),
        {0: fired(1, 50)},
        story(attempt(1, 49, ended=11.0), attempt(2, 49), failed(1, "killed")),
        went_on_from={1: 0, 2: 40},
        losses={},
    )

    assert (told.survived, told.done, told.went_on_from) == (False, "none", 40)


def test_a_run_that_is_given_up_has_not_survived() -> None:
    (told,) = results(
        read_faults("kill@50"),
        {0: fired(1, 50)},
        story(attempt(1, 49, ended=11.0), failed(1, "killed"), decided(1, after=Next.END)),
        went_on_from={1: 0},
        losses={},
    )

    assert (told.survived, told.done, told.went_on_from) == (False, "gave up", None)


def test_a_restart_that_starts_over_is_not_survived() -> None:
    over = replace(attempt(2, 72), outcome=Outcome.STARTED_OVER)
    told = results(
        read_faults("kill@36,segv@72"),
        {0: fired(1, 36), 1: fired(2, 72, at=20.0)},
        story(attempt(1, 36, ended=11.0), over, failed(1, "killed"), decided(1)),
        went_on_from={1: 0, 2: 20},
        losses={},
    )

    assert [each.survived for each in told] == [False, False]


def test_a_job_that_is_done_has_survived_even_if_its_steps_were_not_seen() -> None:
    (told,) = results(
        read_faults("kill@50"),
        {0: fired(1, 50)},
        story(
            attempt(1, 49, ended=11.0),
            attempt(2, 3),
            failed(1, "killed"),
            decided(1),
            outcome=RunOutcome.DONE,
        ),
        went_on_from={1: 0, 2: 49},
        losses={},
    )

    assert (told.survived, told.done) == (True, "retried without changes")


def test_what_the_script_catches_itself_is_not_called_by_what_came_after() -> None:
    caught, killed = results(
        read_faults("oom@20,kill@50"),
        {0: fired(1, 20), 1: fired(1, 50, at=20.0)},
        story(attempt(1, 49, ended=21.0), attempt(2, 60), failed(1, "killed"), decided(1, "retry")),
        went_on_from={1: 0, 2: 40},
        losses={},
    )

    assert (caught.called, caught.done, caught.seen_after) == ("", "the script continued", None)
    assert (caught.survived, killed.survived) == (True, True)
    assert killed.called == "killed"


def test_a_loss_that_is_no_number_any_more_is_not_survived_by_going_on() -> None:
    lasting, passing = (
        results(
            read_faults("nan@20"),
            {0: fired(1, 20)},
            story(attempt(1, 70, ended=21.0), outcome=RunOutcome.DONE),
            went_on_from={1: 0},
            losses={1: LossSeen(at=10.25, lasting=lasts)},
        )[0]
        for lasts in (True, False)
    )

    assert (lasting.called, lasting.done) == ("nan-loss", "the script continued")
    assert (lasting.seen_after, passing.seen_after) == (0.25, 0.25)
    assert (lasting.survived, passing.survived) == (False, True)


def test_a_nan_that_the_script_finds_is_its_failure_whatever_it_is_called() -> None:
    for kind in ("nan-loss", "script-error"):
        (told,) = results(
            read_faults("nan@20"),
            {0: fired(1, 20)},
            story(attempt(1, 20, ended=11.0), attempt(2, 70), failed(1, kind)),
            went_on_from={1: 0, 2: 10},
            losses={1: LossSeen(at=10.25, lasting=True)},
        )

        assert (told.called, told.survived) == (kind, True)


def test_a_fault_that_was_not_reached_is_told() -> None:
    told = results(
        read_faults("kill@500"), {}, story(attempt(1, 100)), went_on_from={1: 0}, losses={}
    )

    assert told == (FaultResult(fault="kill@500", fired=False),)


def test_marks_that_are_not_whole_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "0.fired").write_bytes(b'{"at": 1.5, "step": 20, "run": "drill-77-3"}')
    (tmp_path / "1.fired").write_bytes(b'{"at": 1.')

    found = read_fired(tmp_path, 3)

    assert found == {0: Fired(at=1.5, step=20, run="drill-77-3")}
    assert found[0].attempt == 3


def test_what_is_written_is_read() -> None:
    text = "hang:backward@200, oom@350,hang@400,nan@800,oom:aten::mm@40,kill:aten::add.Tensor@5"

    assert read_faults(text) == (
        Fault(kind="hang", place="backward", at=200, spelt="hang:backward@200"),
        Fault(kind="oom", place="step", at=350, spelt="oom@350"),
        Fault(kind="hang", place="step", at=400, spelt="hang@400"),
        Fault(kind="nan", place="backward", at=800, spelt="nan@800"),
        Fault(kind="oom", place="aten::mm", at=40, spelt="oom:aten::mm@40"),
        Fault(kind="kill", place="aten::add.Tensor", at=5, spelt="kill:aten::add.Tensor@5"),
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "name at least one fault"),
        (",", "name at least one fault"),
        ("kill", "'kill' is not a fault; write it as kill@500"),
        ("kill@", "is not a fault"),
        ("kill@-1", "is not a fault"),
        ("kill@1.5", "is not a fault"),
        ("kill@0", "counted from 1"),
        ("kill@99999999999999", "counted from 1"),
        ("explode@5", "unknown fault 'explode'; known faults: hang, oom"),
        ("hang:sideways@5", "'sideways' is not an operator such as aten::mm. A hang can also be"),
        ("oom:backward@5", "'oom:backward@5': 'backward' is not an operator such as aten::mm."),
        ("oom:aten::@5", "is not an operator"),
    ],
)
def test_what_is_wrong_is_told_in_one_sentence(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        read_faults(text)


def test_what_was_not_tried_is_named() -> None:
    assert not_tried(read_faults("hang:backward@1,oom:aten::mm@2,nan@3")) == (
        "hang:loader",
        "hang:step",
        "fault",
        "kill",
        "segv",
        "abort",
    )


def test_the_training_process_is_told_where_it_goes_on() -> None:
    told = json.loads(for_inside(read_faults("kill@5"), before=3, folder=Path("/marks")))

    assert told == {
        "version": 1,
        "before": 3,
        "folder": "/marks",
        "faults": [{"kind": "kill", "place": "step", "at": 5}],
    }
