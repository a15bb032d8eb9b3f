"""A run as ``watch`` sees it in each state. All figures are invented to show the layout."""

from __future__ import annotations

from msgspec.structs import replace
from samples import HOUR, NOW, RANKS, WATCHED

from rocsteady.hangs.looking.gpu_counters import GpuUse
from rocsteady.model import Outcome, RunOutcome, Strategy
from rocsteady.run.telling.run_watcher import LastSave, WatchView
from rocsteady.store.values import AttemptRecord, Gauge

FIRST, SECOND = WATCHED.story.attempts
SECOND = replace(SECOND, ended=None, outcome=Outcome.NONE, exit_code=None, last_step=None)
STORY = replace(WATCHED.story, attempts=(FIRST, SECOND))
TRAINING = replace(
    WATCHED,
    line=replace(WATCHED.line, attempts=2, incidents=1),
    story=STORY,
    quiet=0.4,
    saved=LastSave(at=NOW - 12, step=4_500),
    gpu_users=(
        GpuUse(gpu=0, pid=4410, used_bytes=15 << 30, user="me"),
        GpuUse(gpu=0, pid=977, used_bytes=3 << 30, user="anna"),
    ),
    memory=(11 << 30, 64 << 30),
)
OF_RANKS = replace(RANKS, story=replace(STORY, forecast=None), quiet=14.0, saved=TRAINING.saved)


def with_attempts(*attempts: AttemptRecord, view: WatchView = TRAINING) -> WatchView:
    return replace(view, story=replace(view.story, attempts=attempts))


def attempt(number: int, **more: object) -> AttemptRecord:
    known: dict[str, object] = {
        "run": 1, "number": number, "strategy": Strategy(), "boot_id": "b", "started": NOW - 90,
        **more,
    }  # fmt: skip
    return AttemptRecord(**known)  # type: ignore[arg-type] # as the test says


HUNG = replace(
    with_attempts(replace(FIRST, ended=None, outcome=Outcome.NONE)),
    line=replace(TRAINING.line, attempts=1, stalled=True, rate=0.0),
    quiet=9.0,
)
HUNG = replace(HUNG, story=replace(HUNG.story, decisions=()))
HUNG_AGAIN = attempt(2, ended=NOW - 30, outcome=Outcome.HUNG, last_step=2_574)
RESUMING = replace(
    with_attempts(FIRST, HUNG_AGAIN, attempt(3, strategy=Strategy(workers=0))), quiet=31.0
)
WAITING = with_attempts(FIRST, replace(HUNG_AGAIN, outcome=Outcome.BY_ITSELF, exit_code=1))
DONE = replace(
    TRAINING,
    line=replace(
        TRAINING.line,
        run=replace(TRAINING.line.run, ended=NOW, outcome=RunOutcome.DONE),
        step=7_500, alive=False, forecast=None,
    ),
    story=replace(STORY, forecast=None, run=replace(STORY.run, ended=NOW, outcome=RunOutcome.DONE)),
)  # fmt: skip
CRASHED = replace(
    DONE,
    line=replace(DONE.line, run=replace(DONE.line.run, outcome=RunOutcome.NOT_DONE), step=120),
    story=replace(
        DONE.story,
        attempts=(attempt(1, ended=NOW, outcome=Outcome.BY_ITSELF, exit_code=1),),
        run=replace(DONE.story.run, outcome=RunOutcome.NOT_DONE),
    ),
)
LATE = replace(TRAINING, story=replace(STORY, deadline=NOW + HOUR / 10))


def loss(value: float) -> Gauge:
    return Gauge(least=value, most=value, mean=value, count=1)
