"""How long trials take, in proportion to the job, and what they see of the GPU."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import cast

import pytest
from builders import failed, tried
from msgspec.structs import replace

from rocsteady.errors import RequestError
from rocsteady.model import Strategy
from rocsteady.plan.trials import (
    LEAST_ANSWERS,
    Bounds,
    GpuLoad,
    KeptTrial,
    KeptTrials,
    PlanTrials,
    TrialKind,
    TrialResult,
    Trials,
    gpu_load,
    keep_trials,
    kept_trials,
)
from rocsteady.plan.values import Pace
from rocsteady.probe import sandbox_run
from rocsteady.probe.scratch import AbsolutePathError
from rocsteady.run.job.values import Job, Total
from rocsteady.store.location import find_place
from rocsteady.store.machine_history import Memory

JOB = Job(command=("python", "train.py"))


def pace(rate: float) -> Pace:
    return Pace(steps=10, seconds=10 / rate, rate=rate, low=rate, high=rate, starting=2.0)


class Made:
    """Trials that take 10 s each and show a pace."""

    stopped = False

    def __init__(self, rate: float, total: int | None) -> None:
        self.seconds, self.bounds = 0.0, list[Bounds]()
        self._rate, self._total = rate, total

    def run(
        self, job: Job, strategy: Strategy, bounds: Bounds, **_: bool
    ) -> tuple[TrialResult, ...]:
        del job
        self.seconds += 10.0
        self.bounds.append(bounds)
        return (
            TrialResult(strategy=strategy, seconds=10.0, pace=pace(self._rate), total=self._total),
        )


@pytest.mark.parametrize(
    ("left", "told", "count"),
    [
        (160, None, 1),  # 16 s: one trial, and no more
        (None, 160, 1),  # as the script told
        (3_000, None, 2),  # 5 min: trials for 30 s
        (1_000_000, None, 6),
        (None, None, 6),
    ],
)
def test_trials_end_with_a_tenth_of_what_is_left(
    left: int | None, told: int | None, count: int
) -> None:
    made = Made(10.0, told)
    trials = PlanTrials(
        cast("Trials", made),
        lambda _: nullcontext(),
        each=20.0,
        within=300.0,
        left=left,
    )

    for _ in range(6):
        trials.run(JOB, Strategy(), TrialKind.PACE)

    assert len(made.bounds) == count


def test_trials_that_fail_before_their_speed_is_known_count_too() -> None:
    class Failing(Made):
        def run(
            self, job: Job, strategy: Strategy, bounds: Bounds, **_: object
        ) -> tuple[TrialResult, ...]:
            super().run(job, strategy, bounds)
            first = TrialResult(strategy=strategy, seconds=10.0, step=40, failure="oom")
            return first, replace(first, step=80)

    made = Failing(10.0, None)
    trials = PlanTrials(
        cast("Trials", made), lambda _: nullcontext(), each=20.0, within=300.0, left=400
    )
    for _ in range(6):
        trials.run(JOB, Strategy(), TrialKind.PACE)

    assert len(made.bounds) == 1  # 100 s by restarts, so 10 s for trials


@pytest.mark.parametrize(
    ("bounds", "told", "seconds"),
    [
        (Bounds(wanted=20.0, in_proportion=True, left=160), None, 1.6),
        (Bounds(wanted=20.0, in_proportion=True), 160, 1.6),
        (Bounds(wanted=20.0, in_proportion=True, left=1_000_000), None, 20.0),
        (Bounds(wanted=20.0, in_proportion=True), None, 20.0),
        (Bounds(wanted=20.0, left=160), 160, 20.0),
    ],
)
def test_a_trial_of_a_short_job_is_short(bounds: Bounds, told: int | None, seconds: float) -> None:
    assert bounds.enough(pace(10.0), told) == pytest.approx(seconds)


def test_a_script_with_an_absolute_path_is_refused_with_what_its_command_offers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AbsolutePathError("train.py names /here")

    monkeypatch.setattr(sandbox_run, "make_scratch", refuse)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "project"
    folder.mkdir()
    memory = Memory(find_place(tmp_path / "memory"))
    for instead in ("", ", or go without"):
        with (
            Trials(folder, memory, print, instead=instead) as trials,
            pytest.raises(RequestError) as refused,
        ):
            trials.run(JOB, Strategy(), Bounds())
        assert str(refused.value) == f"train.py names /here. Use a relative path{instead}"
    memory.close()


@pytest.mark.skipif(sys.platform == "win32", reason="unconfirmed on Windows")
def test_a_trial_returns_how_far_it_came_and_why_it_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "project"
    folder.mkdir()
    script = folder / "train.py"
    job = Job(
        command=(sys.executable, "train.py"), total=Total(log=r"step (?P<n>\d+)/(?P<total>\d+)")
    )
    memory = Memory(find_place(tmp_path / "memory"))
    with Trials(folder, memory, print) as trials:
        script.write_text("print('step 40/40')")
        (well,) = trials.run(job, Strategy(), Bounds())
        script.write_text("print('step 3/40', flush=True); raise ValueError('no such data')")
        (badly,) = trials.run(job, Strategy(), Bounds())
    memory.close()

    assert (well.finished, well.failure, well.step, well.total) == (True, "", 40, 40)
    assert (badly.finished, badly.failure, badly.step, badly.total) == (
        False,
        "script-error",
        3,
        40,
    )


def test_the_mean_of_how_busy_the_busiest_gpu_was_and_the_most_memory() -> None:
    readings = [(1.0, {"GPU 0 busy": 90.0, "GPU 0 memory": 100.0})]  # while it was starting
    for at, busy, memory in ((2.0, 20.0, 300.0), (3.0, 40.0, 500.0), (4.0, 30.0, 400.0)):
        assert gpu_load(readings, 1.5) is None, f"fewer than {LEAST_ANSWERS} answers say nothing"
        measured = {"GPU 0 busy": busy, "GPU 0 memory": memory, "GPU 1 busy": 1.0, "loss": 99.0}
        readings.append((at, measured))

    assert gpu_load(readings, 1.5) == GpuLoad(busy=30.0, memory=500)


def test_a_machine_without_counters_says_nothing() -> None:
    assert gpu_load([(1.0, {"loss": 2.0, "host memory": 1e9})] * 5, 0.0) is None


def test_trials_are_kept_for_a_plan_without_trials_of_the_same_software(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    job = Job(command=("python", "train.py"))
    shown = (failed("hang-in-loader"), tried(2.0, saves=3, resumes=True))
    made = KeptTrial(command=job.command, strategy=Strategy(), results=shown)
    keep_trials(KeptTrials(software="torch 2", trials=(made,), seconds=9.0), tmp_path)

    kept = kept_trials(tmp_path, "torch 2")

    assert kept.run(job, Strategy(), TrialKind.PACE) == shown
    assert kept.run(job, Strategy(device="cpu"), TrialKind.PACE) == ()
    assert kept.run(Job(command=("python", "b.py")), Strategy(), TrialKind.PACE) == ()
    assert kept_trials(tmp_path, "torch 3").trials == ()
    assert kept_trials(tmp_path / "other", "torch 2").trials == ()
