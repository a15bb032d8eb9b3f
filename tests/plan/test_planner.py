"""A plan from what trials show. The trials are scripted here; real ones are in tests/cli."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from builders import failed, finding, option, pace, plan, tried
from msgspec.structs import replace

from rocsteady.cli.plan import as_allowed
from rocsteady.doctor.knowledge.gpu_rental import load_speeds
from rocsteady.doctor.knowledge.harmful_variables import harmful_variables
from rocsteady.doctor.knowledge.values import Severity
from rocsteady.doctor.values import ComputeDevice
from rocsteady.hangs.heartbeat_pages import Size
from rocsteady.model import LoaderFacts, RunOutcome, Strategy
from rocsteady.plan.candidates import local_options, smaller_batch
from rocsteady.plan.circumstances import Circumstances, Goal, goal_of
from rocsteady.plan.pace import FailureHistory
from rocsteady.plan.planner import Planner, make_plan
from rocsteady.plan.ranking import TIME_FOR_TRIALS, ranked, reasons, take
from rocsteady.plan.script_traces import ScriptTraces
from rocsteady.plan.trials import TrialKind, TrialResult
from rocsteady.plan.values import Basis, Option
from rocsteady.run.job.job_file import parse_job
from rocsteady.run.job.values import Job
from rocsteady.store.journal import Journal

INLINE = Strategy(workers=0)
JOB = parse_job('command = ["python", "train.py"]\ntotal = { steps = 7200 }')
GPU = Circumstances(
    os="linux",
    gpus=1,
    gfx=("gfx1010",),
    card=load_speeds()["Radeon RX 5700 XT"],
    trains_on=ComputeDevice.GPU,
    cores=2,
    software="torch 2",
)


class Scripted:
    """Gives back what a trial of each strategy is told to show."""

    def __init__(self, **results: Sequence[TrialResult]) -> None:
        self._results = results
        self.made: list[Strategy] = []

    def __call__(self, job: Job, strategy: Strategy, kind: TrialKind) -> tuple[TrialResult, ...]:
        del kind
        self.made.append(strategy)
        if "--small" in job.command:
            return (tried(9.0, strategy),)
        name = "cpu" if strategy.device == "cpu" else "gpu"
        return tuple(
            replace(result, strategy=strategy) if result.strategy == Strategy() else result
            for result in self._results.get(name, ())
        )


def planned(
    make: Scripted, here: Circumstances = GPU, job: Job = JOB, **wish: float | None
) -> tuple[Planner, list[Option]]:
    wanted = Goal(**{"left": 7200, **wish})  # type: ignore[arg-type]
    planner = Planner(
        job, here, wanted, make, today=date(2026, 11, 15), say=lambda _: None, clock=lambda: 0.0
    )
    planner.work()
    return planner, ranked(planner.options, budget=wanted.budget)


@pytest.mark.parametrize(("steps", "rents"), [(60, False), (720_000, True)])
def test_a_card_is_rented_only_for_what_lasts_longer_than_its_set_up(
    steps: int, *, rents: bool
) -> None:
    """60 steps take half a minute here, 720,000 take four days; to set one up takes 2 hours."""
    _, options = planned(Scripted(gpu=(tried(2.0),), cpu=(tried(0.2),)), left=steps)

    assert any(option.cost for option in options) == rents


def test_a_remedy_that_the_trial_found_is_an_option_and_what_failed_is_ruled_out() -> None:
    broken = failed("hang-in-loader")
    mended = tried(2.4, INLINE, remedy="loader-inline")
    planner, options = planned(Scripted(gpu=(broken, mended), cpu=(tried(0.2),)), by=2 * 3600.0)

    assert (options[0].id, options[0].strategy) == ("gpu+loader-inline", INLINE)
    out = next(option for option in planner.ruled_out if option.id == "gpu")
    assert out.rests_on[0] == "trial failed with hang-in-loader at step 7"
    assert planner.failures == ["hang-in-loader"]


def test_what_failed_once_and_then_worked_as_it_is_stays_an_option_that_counts_the_failure() -> (
    None
):
    worked = tried(2.0, resumes=True, saves=6)
    _, options = planned(Scripted(gpu=(failed("hang-in-loader"), worked), cpu=(tried(0.1),)))

    assert options[0].id == "gpu"
    assert "1 failure in 67 steps here (hang-in-loader)" in options[0].rests_on[0]


def test_what_failed_once_and_cannot_resume_loses_everything_each_time() -> None:
    _, options = planned(Scripted(gpu=(failed("hang-in-loader"), tried(2.0)), cpu=(tried(0.1),)))

    gpu = next(option for option in options if option.id == "gpu")
    assert options[0].id == "cpu"
    assert gpu.finish is not None
    assert gpu.finish.seconds > 10 * 3600.0  # an hour of work


def test_earlier_runs_count_against_a_option() -> None:
    seen = FailureHistory(failures=9, seconds=3600.0, steps=7000, kinds=("hang",))
    calm, _ = planned(Scripted(gpu=(tried(2.0),), cpu=(tried(0.1),)))
    shaken, _ = planned(
        Scripted(gpu=(tried(2.0),), cpu=(tried(0.1),)),
        replace(GPU, histories=((Strategy(), seen),)),
    )

    before, after = calm.options[0].finish, shaken.options[0].finish
    assert before is not None
    assert after is not None
    assert after.failures > 5 > before.failures
    assert after.seconds > before.seconds


def test_a_machine_that_went_down_is_not_tried_again() -> None:
    make = Scripted(gpu=(tried(9.0),), cpu=(tried(0.5),))
    planner, options = planned(make, replace(GPU, deadly=(Strategy(),)), by=8 * 3600.0)

    assert all(strategy.device == "cpu" for strategy in make.made)
    assert options[0].strategy.device == "cpu"
    assert "machine-went-down" in planner.failures
    assert any(option.id.startswith("cloud-") for option in options)


def test_a_variant_of_what_took_the_machine_down_is_not_tried_on_the_gpu_either() -> None:
    job = parse_job('command = ["python", "train.py"]\n[variants.small]\narguments = ["--small"]')
    make = Scripted(gpu=(tried(9.0),), cpu=(failed("script-error"),))
    planned(make, replace(GPU, deadly=(Strategy(),)), job=job)

    assert len(make.made) > 1
    assert all(strategy.device == "cpu" for strategy in make.made)


def test_epochs_are_of_the_variant_and_what_is_done_is_not_left() -> None:
    job = parse_job(
        'command = ["python", "train.py"]\ntotal = { epochs = 10 }\n'
        '[variants.short]\narguments = ["--short"]\ntotal = { epochs = 1 }'
    )
    one = tried(1.0, size=Size(parameters=9, batch=4, batches=50))
    _, options = planned(Scripted(gpu=(one,)), job=job, left=None, epochs=10, done=400)
    ends = {option.id: option.finish.seconds for option in options if option.finish}

    assert ends["gpu"] == pytest.approx(105.0, abs=5)  # 100 of 500 steps, and 5 s to start
    assert ends["variant-short"] == pytest.approx(55.0, abs=5)


def test_a_variant_is_tried_on_the_fastest_option_and_says_that_it_is_another_model() -> None:
    job = parse_job(
        'command = ["python", "train.py"]\ntotal = { steps = 7200 }\n'
        '[variants.small]\narguments = ["--small"]\nwords = "0.7 M parameters"'
    )
    _, options = planned(Scripted(gpu=(tried(0.5),), cpu=(tried(0.2),)), job=job, by=3600.0)

    assert options[0].id == "variant-small"
    assert options[0].changes == "0.7 M parameters"
    assert options[0].command == ("python", "train.py", "--small")


def test_a_variant_that_there_was_no_time_for_is_named() -> None:
    job = parse_job('command = ["python", "train.py"]\n[variants.tiny]\narguments = ["--tiny"]')

    planner, _ = planned(Scripted(), job=job)

    left_out = next(option for option in planner.not_tried if option.variant == "tiny")
    assert left_out.basis is Basis.NOT_TRIED


def test_a_plan_whose_trials_measured_no_speed_recommends_nothing() -> None:
    cut_short = tried(None, step=0, seconds=16.0)
    planner, _ = planned(Scripted(gpu=(cut_short,), cpu=(cut_short,)))

    said = make_plan(JOB, Path("/p"), GPU, Goal(left=7200), planner).take

    assert said.startswith("No recommendation: no trial was long enough to measure a speed")
    assert "not tried" not in said
    assert all(option.cut_short for option in planner.not_tried if not option.variant)


def test_without_time_for_trials_options_say_so_and_estimates_have_no_figure() -> None:
    planner, options = planned(Scripted())

    assert all(option.pace is None for option in options)
    assert any(TIME_FOR_TRIALS in option.rests_on[0] for option in planner.not_tried)
    assert planner.ruled_out == []


def test_without_a_total_there_is_a_pace_and_no_end() -> None:
    planner = Planner(
        Job(command=("python", "train.py")),
        GPU,
        Goal(),
        Scripted(gpu=(tried(2.0),), cpu=(tried(0.1),)),
        today=date(2026, 11, 15),
        say=lambda _: None,
    )
    planner.work()

    assert planner.options[0].pace is not None
    assert planner.options[0].finish is None
    assert planner.left is None


def test_the_recommendation_names_what_rules_the_plain_option_out() -> None:
    blocked = replace(GPU, trains_on=ComputeDevice.CPU, findings=(finding("wheel-lacks-arch"),))
    planner, options = planned(Scripted(cpu=(tried(1.0),)), blocked, by=4 * 3600.0)
    made = plan(*options, ruled_out=tuple(planner.ruled_out), deadline=None)

    assert made.options[0].basis is Basis.TRIAL
    assert "wheel-lacks-arch" in take(made)
    assert take(made) == f"Recommended: option 1. {reasons(made)}"
    assert "No option was found" in take(replace(made, options=()))


def test_without_a_gpu_a_variable_that_a_remedy_unset_makes_a_option() -> None:
    harmful = next(each for each in harmful_variables() if not each.beside)
    here = Circumstances(os="linux", cores=2, software="torch 2", harmful=(harmful,))
    without = Strategy(variables={harmful.name: None})
    mended = tried(2.0, without, remedy="unset-variable")
    _, options = planned(Scripted(gpu=(failed("blas-error"), mended)), here, by=3600.0 * 4)

    assert options[0].strategy == without


def test_a_deadline_that_trials_come_close_to_is_measured_from_their_end() -> None:
    trials = Scripted(gpu=(tried(2.0),))
    planner = Planner(
        JOB,
        GPU,
        Goal(left=720, by=3600.0),
        trials,
        today=date(2026, 11, 15),
        say=lambda _: None,
        clock=lambda: 3500.0 if len(trials.made) > 1 else 0.0,
    )
    planner.work()

    found = planner.options[0].finish
    assert found is not None
    assert found.in_time == 0.0  # 6 minutes, of which 100 seconds are left


def test_what_works_but_is_late_is_not_said_to_fail() -> None:
    _, options = planned(Scripted(gpu=(tried(0.5),), cpu=(tried(0.1),)), by=3600.0)
    rented = next(option for option in options if option.cost)
    made = plan(rented, *(it for it in options if it is not rented), deadline=None, budget=500.0)

    assert "What was tried here is not on time." in take(made)
    changed = [
        replace(option, changes="x") if option.id == "gpu" else option for option in made.options
    ]
    said = take(replace(made, options=tuple(changed)))
    assert "What was tried here without changing the job is not on time." in said


def here(**more: object) -> Circumstances:
    return Circumstances(os="linux", **more)  # type: ignore[arg-type]


def test_without_a_gpu_there_is_the_cpu_as_the_script_says() -> None:
    (only,) = local_options(here(cores=2))

    assert (only.id, only.strategy, only.title) == ("cpu", Strategy(), "CPU, unchanged")


def test_a_gpu_as_it_is_and_then_the_cpu() -> None:
    options = local_options(here(gpus=1, trains_on=ComputeDevice.GPU))

    assert [option.id for option in options] == ["gpu", "cpu"]
    assert options[1].strategy.device == "cpu"


def test_variables_that_harm_are_taken_away_in_an_option_of_their_own_that_says_why() -> None:
    harmful = [each for each in harmful_variables() if not each.beside][:2]

    options = local_options(here(gpus=1, harmful=tuple(harmful)))

    clean = next(option for option in options if option.id == "gpu+clean")
    assert clean.strategy.variables == {each.name: None for each in harmful}
    assert all(f"{each.name}: " in " ".join(clean.rests_on) for each in harmful)


def test_of_several_gpus_one_is_an_option_too() -> None:
    options = {option.id: option for option in local_options(here(gpus=2))}

    assert options["gpu+one"].strategy.gpus == (0,)


def test_what_helped_before_is_a_option() -> None:
    inline = Strategy(workers=0)

    options = {
        option.id: option
        for option in local_options(here(gpus=1, remedied=(("loader-inline", inline),)))
    }

    assert options["gpu+loader-inline"].strategy == inline


def test_a_gpu_that_took_the_machine_down_is_ruled_out_whatever_the_loader() -> None:
    inline = ("loader-inline", Strategy(workers=0))
    options = local_options(here(gpus=1, deadly=(Strategy(),), remedied=(inline,)))

    out = [option for option in options if option.basis is Basis.RULED_OUT]
    assert [option.id for option in out] == ["gpu", "gpu+loader-inline"]
    assert out[0].rests_on[0].startswith("machine-went-down")
    assert options[-1].id == "cpu"
    assert options[-1].basis is Basis.TRIAL


def test_a_finding_that_blocks_rules_the_gpu_out_by_its_name() -> None:
    findings = (finding("override-active", Severity.RISKS), finding("wheel-lacks-arch"))

    first, *_ = local_options(here(gpus=1, trains_on=ComputeDevice.CPU, findings=findings))

    assert first.basis is Basis.RULED_OUT
    assert first.rests_on == ("wheel-lacks-arch: what it says",)


def test_what_fails_again_and_again_and_gets_on_has_the_pace_of_its_restarts() -> None:
    seen = ScriptTraces(checkpoints=("out/step-*.pt",))
    fails = replace(failed("oom-fragmentation", step=40), resumes=True, watched=seen)
    again = replace(fails, step=80)
    _, options = planned(Scripted(gpu=(fails, again), cpu=(tried(0.1),)))

    gpu = next(option for option in options if option.id == "gpu")
    assert gpu.pace is not None
    assert gpu.pace.rate == pytest.approx(4.0)  # 40 steps in the 10 s of the second attempt
    assert gpu.failures == 2
    assert gpu.finish is not None
    assert gpu.finish.seconds == pytest.approx(7200 / 4, rel=0.1)
    assert options[0].id == "gpu"
    stuck, _ = planned(Scripted(gpu=(fails, fails), cpu=(tried(0.1),)))
    assert [option.id for option in stuck.ruled_out if option.id == "gpu"] == ["gpu"]


def test_a_variable_of_ones_own_is_a_row_that_is_measured() -> None:
    job = parse_job(
        'command = ["python", "train.py"]\ntotal = { steps = 7200 }\n'
        '[variants.sdma]\nenvironment = { HSA_ENABLE_SDMA = "0" }'
    )
    make = Scripted(gpu=(tried(2.0),), cpu=(tried(0.2),))
    _, options = planned(make, job=job, by=7200.0)

    row = next(option for option in options if option.variant == "sdma")
    assert row.strategy.variables == {"HSA_ENABLE_SDMA": "0"}
    assert row.changes == ""
    assert row.pace is not None
    assert Strategy(variables={"HSA_ENABLE_SDMA": "0"}) in make.made


def test_out_of_memory_names_the_batch_and_tries_half_of_it() -> None:
    command = ("python", "train.py", "--batch-size", "8", "--grad-accum", "2")
    job = replace(JOB, command=command)
    made: list[tuple[str, ...]] = []

    def run_trial(job: Job, strategy: Strategy, kind: TrialKind) -> tuple[TrialResult, ...]:
        del kind
        made.append(job.command)
        fits = strategy.device == "cpu" or "8" not in job.command
        return (tried(0.01 if strategy.device else 1.5, strategy),) if fits else (
            failed("oom-device", strategy, step=0),
        )  # fmt: skip

    planner = Planner(
        job, GPU, Goal(left=7200), run_trial, today=date(2026, 11, 15), say=lambda _: None
    )
    planner.work()

    out = next(it for it in planner.ruled_out if it.id == "gpu")
    assert "lower --batch-size, now 8" in out.rests_on[0]
    assert ("python", "train.py", "--batch-size", "4", "--grad-accum", "4") in made
    row = next(it for it in planner.options if it.variant == "smaller-batch")
    assert row.strategy.device is None
    assert row.pace is not None


def test_the_default_of_the_scripts_own_batch_counts_too() -> None:
    here = replace(GPU, defaults=("--batch_size", "8"))
    make = Scripted(gpu=(failed("oom-device", step=0),), cpu=(tried(0.01),))
    planner, _ = planned(make, here)

    out = next(it for it in planner.ruled_out if it.id == "gpu")
    assert "lower --batch_size, now 8" in out.rests_on[0]
    smaller = next(it for it in planner.ruled_out if it.variant == "smaller-batch")
    assert smaller.command[-2:] == ("--batch_size", "4")


@pytest.mark.parametrize(
    ("command", "switches", "becomes"),
    [
        ("train.py --precision 16-mixed", (), "train.py --precision bf16-mixed"),
        ("train.py --mixed_precision=fp16", (), "train.py --mixed_precision bf16"),
        ("train.py --dtype float32 --lr 1", (), "train.py --dtype bfloat16 --lr 1"),
        ("train.py --fp16", (), "train.py --bf16"),
        ("train.py", ("--bf16", "--compile"), "train.py --bf16"),
        ("train.py --bf16", ("--bf16",), ""),
        ("train.py --dtype bfloat16", (), ""),
        ("train.py", ("--compile",), ""),  # how it would, nobody knows
    ],
)
def test_bfloat16_is_a_row_with_its_pace_that_says_that_the_numbers_differ(
    command: str, switches: tuple[str, ...], becomes: str
) -> None:
    job = replace(JOB, command=("python", *command.split()))
    make = Scripted(gpu=(tried(2.0),), cpu=(tried(0.1),))
    _, options = planned(make, replace(GPU, switches=switches), job=job, by=7200.0)

    rows = [it for it in options if it.variant == "bf16"]
    assert [" ".join(row.command[1:]) for row in rows] == [becomes] * bool(becomes)
    assert all(row.pace and row.basis is Basis.TRIAL and "numbers" in row.changes for row in rows)
    assert options[0].id == "gpu"  # as the script says, and on time


def test_a_loader_without_workers_gets_some_by_the_scripts_own_option() -> None:
    loader = LoaderFacts(loaders=1, workers=0, context="fork", pickles=True, main_guarded=True)
    slow = tried(pace=pace(1.0, data=0.8, compute=0.2), loader=loader)
    made: list[tuple[str, ...]] = []

    def run_trial(job: Job, strategy: Strategy, kind: TrialKind) -> tuple[TrialResult, ...]:
        del kind
        made.append(job.command)
        return (replace(slow, strategy=strategy),)

    def rows(*defaults: str) -> list[Option]:
        here = replace(GPU, cores=4, defaults=defaults)
        planner = Planner(
            JOB, here, Goal(left=7200), run_trial, today=date(2026, 11, 15), say=lambda _: None
        )
        planner.work()
        return [it for it in planner.options if it.variant]

    assert [it.changes for it in rows("--batch", "2", "--num-workers", "0")] == [""]
    assert ("python", "train.py", "--num-workers", "4") in made
    assert rows() == []  # how it would, nobody knows


def test_where_loading_is_the_limit_more_workers_are_tried() -> None:
    loader = LoaderFacts(loaders=1, workers=1, context="fork", pickles=True, main_guarded=True)
    slow = tried(pace=pace(1.0, data=0.8, compute=0.2), loader=loader)
    make = Scripted(gpu=(slow,), cpu=(tried(0.2),))
    _, options = planned(make, replace(GPU, cores=6), by=7200.0)

    assert Strategy(workers=6) in make.made
    assert "gpu+workers" in [option.id for option in options]


@pytest.mark.parametrize(("number", "left"), [(300, 300), (None, 310), (0, 600)])
def test_what_was_not_saved_is_left(tmp_path: Path, number: int | None, left: int) -> None:
    """A run stopped in step 313 goes on from what it saved last."""
    job = parse_job(
        'command = ["x"]\ntotal = { steps = 600 }\n[resume]\ncheckpoints = ["ckpt/*.pt"]\n'
        'arguments = ["--resume", "{checkpoint}"]\n'
    )
    saved = tmp_path / "ckpt" / ("last.pt" if number is None else f"step_{number}.pt")
    saved.parent.mkdir()
    if number != 0:
        saved.write_bytes(b"saved")
        os.utime(saved, (1100.0, 1100.0))
    buckets = [
        SimpleNamespace(first_step=n, last_step=n + 3, first_progress=at, last_progress=at + 1)
        for at, n in ((1000.0, 10), (1098.0, 287), (1101.0, 310))
    ]
    run = SimpleNamespace(command=job.command, outcome=RunOutcome.STOPPED, started=1.0, name="a")
    journal = SimpleNamespace(
        runs=lambda: [SimpleNamespace(run=run, step=313)],
        story=lambda _: SimpleNamespace(progress=buckets),
    )

    assert goal_of(job, tmp_path, cast("Journal", journal), 0.0).left == left


def test_what_the_policy_refuses_is_not_advised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('mode = "retry"\n')
    made = plan(replace(option(1), do="rocsteady run --plan 1"))
    monkeypatch.setenv("ROCSTEADY_POLICY", str(policy))

    allowed = as_allowed(made)

    assert [it.do for it in allowed.options] == [""]
    assert f"run --plan is not allowed here by {policy} (retry only" in allowed.warnings[-1]
    assert "rocsteady run -- python train.py" in allowed.warnings[-1]


@pytest.mark.parametrize(("waits", "tried_with"), [(True, ["2", "8"]), (False, ["2"])])
def test_where_loading_waits_more_workers_than_processors_are_tried(
    tried_with: list[str], *, waits: bool
) -> None:
    loader = LoaderFacts(loaders=1, workers=0, context="fork", pickles=True, main_guarded=True)
    made: list[str] = []

    def run_trial(job: Job, strategy: Strategy, kind: TrialKind) -> tuple[TrialResult, ...]:
        del kind
        if job.command == JOB.command:
            found = pace(1.0, data=0.99, compute=0.01)
            return (tried(strategy=strategy, pace=found, loader=loader),)
        made.append(job.command[-1])
        return (tried(float(job.command[-1]) if waits else 1.2, strategy),)

    here = Circumstances(os="linux", cores=2, defaults=("--num-workers", "0"))
    planner = Planner(
        JOB, here, Goal(left=7200), run_trial, today=date(2026, 11, 15), say=lambda _: None
    )
    planner.work()

    assert made == tried_with
    best = ranked(planner.options, budget=None)[0]
    assert not best.changes
    assert best.command[-1] == tried_with[-1]
    assert ("8 loader workers" in planner.limits[0].best) == waits


def test_half_of_a_batch_says_how_many_samples_a_step_sees() -> None:
    half = smaller_batch(("python", "t.py", "--batch-size", "64"))["smaller-batch"]
    same = smaller_batch(("python", "t.py", "--batch-size", "64", "--grad-accum", "2"))

    assert half.words == "--batch-size 32: as many steps see half of the samples"
    assert "as many samples as before" in same["smaller-batch"].words
