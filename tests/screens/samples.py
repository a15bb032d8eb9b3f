"""Screens of values that no recorded machine has: plans, runs, drills, probes, what a run says.

All figures are invented to show the layout, except those of the plan of field note A.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import msgspec

from rocsteady.doctor.values import Diagnosis
from rocsteady.hangs.inspection import Inspection, ProcessState
from rocsteady.hangs.judgment.verdict import Verdict
from rocsteady.hangs.proof.wait_set import Activity, Member, Waiter, WaitSet
from rocsteady.hangs.values import ProcessSeen, ThreadSeen, Wait
from rocsteady.model import (
    Forecast,
    Observation,
    Outcome,
    ProbeOutcome,
    Risk,
    RunOutcome,
    RunState,
    Strategy,
)
from rocsteady.plan.values import Basis, Finish, Limit, Option, Pace, Plan, Price
from rocsteady.probe.values import DrillResult, FaultResult, ProbeLine
from rocsteady.report.pages import render_markdown
from rocsteady.report.story import RunFacts, build_story
from rocsteady.run.checkpoints.resume_detection import ResumeMethod, ResumeSign
from rocsteady.run.telling.events import (
    Crashed,
    Done,
    GaveUp,
    Moving,
    Quiet,
    Resumed,
    Started,
    Stopped,
    Waiting,
)
from rocsteady.run.telling.run_watcher import RankView, WatchView
from rocsteady.screens.doctor import render_diagnosis
from rocsteady.screens.inspection import render_inspection
from rocsteady.screens.plan import render_option, render_plan
from rocsteady.screens.probe import (
    conclusion,
    render_drill,
    render_probe,
    render_stories,
    title_column,
)
from rocsteady.screens.run_lines import RunScreen
from rocsteady.screens.runs import render_runs
from rocsteady.screens.screen import page_here, show
from rocsteady.store.values import (
    AttemptRecord,
    Bucket,
    Gauge,
    Incident,
    MessageRecord,
    Run,
    RunLine,
    RunRecord,
)
from tests.values import decided

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC).timestamp()
HOUR, DAY = 3600.0, 86400.0
DIAGNOSIS = Path(__file__).parent / "diagnosis.json"  # of rx7900xt-allocator
NOTE_A = Path(__file__).parent / "plans/note-a.json"


def pace(rate: float) -> Pace:
    steps = max(2, round(40 * rate))
    return Pace(
        steps=steps,
        seconds=steps / rate,
        rate=rate,
        low=rate * 0.98,
        high=rate * 1.02,
        starting=9.0,
    )


def finish(seconds: float, off: float, on_time: float, **more: float) -> Finish:
    return Finish(seconds=seconds, early=seconds - off, late=seconds + off, in_time=on_time, **more)


def option(number: int, title: str, basis: Basis = Basis.TRIAL, **more: object) -> Option:
    do = f"rocsteady run --plan {number}" if basis is Basis.TRIAL else ""
    known = {"id": title.lower().replace(" ", "-"), "do": do, **more}
    return Option(number=number, title=title, basis=basis, **known)  # type: ignore[arg-type]


PLAN = Plan(
    rocsteady="0.1",
    made=NOW,
    command=("python", "train.py"),
    folder="/home/me/detector",
    software="gfx1100, torch 2.9.1",
    total=2_000_000,
    left=1_970_000,
    deadline=NOW + 14 * DAY + 6 * HOUR,
    trials=4,
    trial_seconds=160,
    options=(
        option(
            1,
            "GPU, no loader processes",
            pace=pace(2.38),
            failed_steps=904,
            finish=finish(9 * DAY + 14 * HOUR, 3 * HOUR, 0.99),
            rests_on=("trial, 95 steps in 40 s; 0 failures in 904 steps",),
        ),
        option(
            2,
            "GPU, unchanged",
            pace=pace(2.41),
            failures=3,
            failed_steps=22_616,
            kinds=("hang-in-loader",),
            finish=finish(9 * DAY + 17 * HOUR, 9 * HOUR, 0.99, failures=260.4, lost=0.028),
            risk=Risk.MEDIUM,
            rests_on=("trial, 96 steps in 40 s; 3 failures in 22,616 steps here",),
        ),
        option(
            3,
            "GPU, variant small",
            variant="small",
            pace=pace(5.1),
            failed_steps=204,
            finish=finish(4 * DAY + 11 * HOUR, 2 * HOUR, 0.999),
            changes="0.7 M parameters instead of 2.9 M",
        ),
        option(
            4,
            "cloud, RTX 4090",
            Basis.ESTIMATE,
            pace=pace(9.04),
            finish=finish(3 * DAY, 1 * DAY, 0.95),
            setup=(60, 120),
            cost=(24.6, 25.3),
            price=Price(
                dollars=0.34, as_of="2026-08-22", source="https://prices.example/gpus", old=True
            ),
            risk=Risk.MEDIUM,
            rests_on=("scaled by the vendors' peak figures, 3 to 5 times",),
            sources=("amd-specifications", "nvidia-specifications"),
            do="rocsteady plan --export skypilot --option 4",
        ),
        option(5, "CPU, bf16, 8 threads", pace=pace(0.19), finish=finish(120 * DAY, 5 * DAY, 0.0)),
    ),
    ruled_out=(
        option(0, "WSL2", Basis.RULED_OUT, rests_on=("already on Linux",)),
        option(0, "two GPUs", Basis.RULED_OUT, rests_on=("only one is present",)),
    ),
    take=(
        "Recommended: option 1. Option 2 had 3 failures in 22,616 steps (hang-in-loader); this one"
        " had none. Option 2 takes about the same time."
    ),
    limits=(
        Limit(
            part="data",
            share=0.41,
            where="dataset.py:88 __getitem__",
            best="8 loader workers, not 4",
            gain=1.4,
        ),
        Limit(part="compute", share=0.35),
    ),
)
UNTRIED = msgspec.structs.replace(
    PLAN,
    trials=0,
    left=None,
    total=None,
    deadline=None,
    limits=(),
    options=(msgspec.structs.replace(PLAN.options[3], number=1, finish=None),),
    not_tried=(option(0, "GPU, unchanged", Basis.NOT_TRIED, rests_on=("--no-trials was given",)),),
    take="",
)
RUN = Run(
    id=1,
    name="calm-otter",
    command=("python", "train.py"),
    job={},
    strategy=Strategy(),
    folder="/r",
    machine="m",
    boot_id="b",
    process="",
    started=NOW - 2 * HOUR,
)
LINE = RunLine(
    run=RUN, alive=True, attempts=3, incidents=2, step=4_575, total=7_500, rate=2.38,
    last_progress=NOW - 3, seconds_left=1230.0, deadline=NOW + 6 * HOUR,
    forecast=Forecast(
        at=NOW + 1230, early=NOW + 1000, late=NOW + 1500, rate=2.38, left=2925, failures=0.1
    ),
)  # fmt: skip
DONE = msgspec.structs.replace(RUN, name="bold-heron", ended=NOW - DAY, outcome=RunOutcome.DONE)
FAILED = msgspec.structs.replace(
    RUN, name="quick-elk", ended=NOW - DAY, outcome=RunOutcome.NOT_DONE
)
RUNS = (
    LINE,
    msgspec.structs.replace(
        LINE, run=msgspec.structs.replace(RUN, name="wary-fox"), stalled=True, rate=0.0,
        forecast=None, seconds_left=None, last_progress=NOW - 840,
    ),
    msgspec.structs.replace(
        LINE, run=msgspec.structs.replace(RUN, name="plain-owl"), alive=False, deadline=None
    ),
    msgspec.structs.replace(LINE, run=DONE, step=7_500, forecast=None, deadline=NOW - DAY + HOUR),
    msgspec.structs.replace(LINE, run=FAILED, step=12, total=None, forecast=None, deadline=None),
)  # fmt: skip
STORY = RunRecord(
    run=msgspec.structs.replace(RUN, ended=NOW, outcome=RunOutcome.DONE),
    attempts=(
        AttemptRecord(
            run=1, number=1, strategy=Strategy(), boot_id="b", started=NOW - 7200,
            ended=NOW - 4000, signal=9, outcome=Outcome.HUNG, last_step=2_574,
        ),
        AttemptRecord(
            run=1, number=2, strategy=Strategy(workers=0), boot_id="b",
            started=NOW - 3990, ended=NOW, exit_code=0, outcome=Outcome.BY_ITSELF, last_step=7_500,
        ),
    ),
    incidents=(
        Incident(
            run=1, attempt=1, number=1, verdict=RunState.HUNG, why="no step for 9.0 s", quiet=9.0,
            place="dataset.py:88 in __getitem__", evidence="/r/incident-1", at=NOW - 4000,
        ),
    ),
    failures=(),
    decisions=(
        decided("loader-inline", "No DataLoader worker processes.", at=NOW - 3999),
    ),
    messages=(MessageRecord(run=1, text="run calm-otter started.", at=NOW - 7200),),
    intents=(),
    progress=(),
    losses=(),
    seconds_lost=190.0,
    deadline=NOW + HOUR,
)  # fmt: skip


def bucket(number: int, step: int, at: float) -> Bucket:
    return Bucket(
        run=1, attempt=2, start=at, width=60, first_step=step, last_step=step + 140, total=7_500,
        first_progress=at + 1, last_progress=at + (60 if number != 8 else 119), quiet=1.0,
        seconds_in={"data": 7.0, "forward": 19.0, "backward": 26.0, "optimizer": 6.0, "other": 2.0},
        seconds_as={RunState.HEALTHY: 60.0},
        gauges={
            name: Gauge(least=value, most=value, mean=value, count=2)
            for name, value in {
                "loss": 0.4 + 2.0 / (number + 1), "host memory": 11.4 * 2**30,
                "GPU 0 memory": 18.2 * 2**30, "GPU 0 busy": 97.0, "GPU 0 temperature": 71.0,
                "GPU 0 power": 286.0,
            }.items()
        },
    )  # fmt: skip


WATCHED = WatchView(
    now=NOW,
    line=LINE,
    story=msgspec.structs.replace(
        STORY,
        run=RUN,
        forecast=LINE.forecast,
        deadline=LINE.deadline,
        progress=tuple(bucket(n, 2_600 + 141 * n, NOW + 60 * (n - 15)) for n in range(14)),
        messages=(MessageRecord(run=1, text="progress resumed.", at=NOW - 3900),),
    ),
    log=tuple(f"11:59:{n:02} Epoch 1:  61%|######1   | {4_560 + n}/7500" for n in range(50, 60)),
)
RANKS = msgspec.structs.replace(
    WATCHED,
    line=msgspec.structs.replace(
        LINE, stalled=True, forecast=None, rate=0.0, last_progress=NOW - 14
    ),
    story=msgspec.structs.replace(WATCHED.story, forecast=None),
    ranks=tuple(
        RankView(rank=n, step=4_575, phase="data" if n == 5 else "backward", quiet=14.0)
        for n in range(8)
    ),
)


def fault(name: str, step: int, **more: object) -> FaultResult:
    known = {"fired": True, "step": step, "attempt": 1, "survived": True, **more}
    return FaultResult(fault=name, **known)  # type: ignore[arg-type]


DRILL = DrillResult(
    command=("python", "train.py"),
    faults=(
        fault(
            "hang:backward@200", 200, seen_after=9.8, called="hang-in-backward",
            done="retried without changes", went_on_from=180,
        ),
        fault(
            "oom@350", 350, seen_after=0.1, called="oom-device", done="half-micro-batch",
            went_on_from=349,
        ),
        fault(
            "kill@500", 500, seen_after=0.04, called="killed", done="retried without changes",
            went_on_from=480,
        ),
    ),
    can_resume=True,
    ended="done",
    not_tried=("segv",),
    changed=(),
)  # fmt: skip
LOST = msgspec.structs.replace(
    DRILL,
    faults=(
        fault(
            "nan@40", 40, seen_after=0.2, called="nan-loss", done="the script continued",
            survived=False,
        ),
        FaultResult(fault="kill@900", fired=False),
    ),
    can_resume=False,
    changed=None,
    kept="/home/me/.local/state/rocsteady/drills/x",
    next_command="rocsteady drill --faults kill@50 -- python train.py",
)  # fmt: skip


def seen(title: str, outcome: ProbeOutcome = ProbeOutcome.OK, **more: object) -> ProbeLine:
    name, _, variant = title.partition(" ")
    known = {"tries": 200, "seconds": 1.9, "at": NOW, "software": "gfx1100, torch 2.9.1", **more}
    observation = Observation(probe=name, variant=variant, outcome=outcome, **known)  # type: ignore[arg-type]
    return ProbeLine(observation=observation, what="backward passes", one_in=67)


PROBES = (
    seen("import", tries=1),
    seen("matmul-gradient bf16", worst=0.4),
    seen(
        "attention-backward flash", ProbeOutcome.HANG, tries=0,
        why="at try 1, terminated after 10 s",
        place="_scaled_dot_product_flash_attention_backward",
    ),
    seen("attention-backward math"),
    seen("ranks nccl", ProbeOutcome.NOT_RUN, tries=0, why="1 GPU"),
)  # fmt: skip


def _plan(plan: Plan) -> None:
    show(render_plan(plan, now=NOW, page=page_here(), zone=UTC))


def _note_a() -> None:
    plan = msgspec.json.decode(NOTE_A.read_bytes(), type=Plan)
    show(render_plan(plan, now=plan.made, page=page_here(), zone=UTC))


def _option(number: int) -> None:
    option = PLAN.options[number - 1]
    show(render_option(option, PLAN, now=NOW, page=page_here(), zone=UTC))


def _runs(lines: tuple[RunLine, ...]) -> None:
    show(render_runs(lines, now=NOW, page=page_here(), zone=UTC))


def _drill(result: DrillResult) -> None:
    show(render_drill(result, page=page_here()))


def _probes() -> None:
    column = title_column(each.observation.title for each in PROBES)
    for each in PROBES:
        show(render_probe(each, column=column, page=page_here()))
    show("\n".join(conclusion(PROBES)) + "\n")


def _probe_stories() -> None:
    show(render_stories(PROBES[1:2], "gfx1100, torch 2.10.0", page=page_here()))


def _said() -> None:
    """Show every kind of line that a run has."""
    screen = RunScreen(stream=sys.stdout)
    for event in RUN_EVENTS:
        for line in screen.lines(event):
            show(f"{line}\n")


def _inspection() -> None:
    main, worker = (
        Waiter(
            pid=4410, tid=4410, place="train.py:61 main", waits_for="pipe 7711",
            enders=(4423,), frames=("get (multiprocessing/queues.py:113)", "main (train.py:61)"),
        ),
        Waiter(
            pid=4423, tid=4423, place="train.py:24 Numbers.__getitem__",
            waits_for="lock 0x564003fc9c50", frames=("__getitem__ (train.py:24)",),
        ),
    )  # fmt: skip
    found = Inspection(
        pid=4410, command=("python", "train.py"), age=743.0, state=ProcessState.STUCK,
        why="process 4423 is waiting for a lock, and nothing can end that wait",
        place=worker.place, waiters=(main, worker), ways_out=(), processes=3,
        memory_bytes=1 << 30, gpus="", seconds=2.4,
    )  # fmt: skip
    show(render_inspection(found, (), page=page_here()))


def _doctor() -> None:
    """Show a diagnosis as it was once: a new rule changes the doctor's own tests, not this."""
    diagnosis = msgspec.json.decode(DIAGNOSIS.read_bytes(), type=Diagnosis)
    show(render_diagnosis(diagnosis, page=page_here()))


def _waiter(pid: int, wait: Wait, place: str, *, trains: bool) -> Member:
    thread = ThreadSeen(tid=pid, name="python", state="S", cpu=1.0, wait=wait)
    process = ProcessSeen(
        pid=pid, parent=1, name="python", python=True, read_bytes=0, written_bytes=0,
        rss_bytes=1 << 30, threads=(thread,), handlers=(),
    )  # fmt: skip
    return Member(
        process=process, thread=thread, trains=trains, activity=Activity.WAITS_INSIDE, place=place
    )


_MAIN = _waiter(4410, Wait.TREE, "train.py:61 main", trains=True)
_LOCKED = _waiter(4423, Wait.LOCK, "train.py:24 Numbers.__getitem__", trains=False)
_HUNG = Verdict(
    condition=RunState.HUNG, why="", quiet=5.1, place=_LOCKED.place, culprit=4423,
    waits=WaitSet(at=0.0, members=(_MAIN, _LOCKED)),
)  # fmt: skip
_FOUND = ResumeMethod(
    how=ResumeSign.OPTION, arguments=("--resume", "{checkpoint}"), where="train.py:31",
    checkpoint="checkpoints/last.pt",
)  # fmt: skip
_TRAIN = ("python", "train.py")
RUN_EVENTS = (
    Started(name="calm-otter", command=_TRAIN, method=_FOUND),
    Started(name="calm-otter", command=_TRAIN, method=ResumeMethod(how=ResumeSign.UNKNOWN)),
    Started(name="calm-otter", command=_TRAIN, again=True, settings="num_workers=0"),
    Started(name="calm-otter", command=_TRAIN, observe=True),
    Quiet(
        verdict=Verdict(
            condition=RunState.SLOW, why="", quiet=100.0, starting=True, place="train.py:40 main",
            limit=10800.0,
        )
    ),
    Quiet(verdict=Verdict(condition=RunState.SLOW, why="", quiet=60.0, limit=1800.0), step=212),
    Moving(step=213, after=62.0),
    Quiet(verdict=_HUNG, step=212),
    Resumed(at="step 200", checkpoint="checkpoints/last.pt"),
    Quiet(verdict=_HUNG, step=212, again=True),
    Resumed(
        at="step 200", checkpoint="checkpoints/last.pt", changes="num_workers=0",
        in_vain="loader-forkserver",
    ),
    Resumed(changes="attention=math"),
    Resumed(by_itself=True),
    Crashed(what="KeyError: 'val_loss'", failure="script-error", place="train.py:6", own=True),
    Crashed(what="out of GPU memory", failure="oom-device", step=40, lower=(("--batch-size", 64),)),
    Waiting(
        trouble="The disk is full", advice="delete what is not needed", next_try=5.0,
        limit=86400.0,
    ),
    Stopped(seconds=754.0, step=4575, resume="rocsteady run --resume calm-otter"),
    Stopped(seconds=9.0, resume="rocsteady run --resume never -- ./t", resumes=False),
    GaveUp(
        seconds=183.0, why="No other workaround for hang-in-loader is known here.",
        place=_LOCKED.place, change="let each worker open its own locks",
        then="rocsteady run --resume calm-otter", report="rocsteady report",
    ),
    GaveUp(
        seconds=752.0, why="it cannot resume, and a restart would lose its progress",
        no_resume=_TRAIN, report="rocsteady report",
    ),
    Done(seconds=3480.0, steps=7500),
    Done(
        seconds=72.0, steps=500, hangs=2, lost=31.0, place=_LOCKED.place,
        keep="rocsteady run --with loader-inline", report="rocsteady report",
    ),
)  # fmt: skip


SAMPLES: dict[str, Callable[[], None]] = {
    "doctor-rx7900xt-allocator": _doctor,
    "plan": partial(_plan, PLAN),
    "plan-untried": partial(_plan, UNTRIED),
    "plan-note-a": _note_a,
    "plan-explain-trial": partial(_option, 2),
    "plan-explain-estimate": partial(_option, 4),
    "status": partial(_runs, RUNS),
    "status-none": partial(_runs, ()),
    "report": lambda: show(render_markdown(build_story(RunFacts(at=NOW, record=STORY)))),
    "drill": partial(_drill, DRILL),
    "drill-lost": partial(_drill, LOST),
    "probe": _probes,
    "probe-explain": _probe_stories,
    "run-lines": _said,
    "watch-pid": _inspection,
}
