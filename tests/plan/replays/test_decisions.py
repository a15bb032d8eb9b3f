"""What the replays rest on, without a trial: which rows there are, and what is said of them."""

from __future__ import annotations

from datetime import date
from pathlib import Path

from builders import failed, finding, pace, tried
from msgspec.structs import replace
from replays.earlier import Earlier, leave_runs

from rocsteady.doctor.knowledge.harmful_variables import harmful_variables
from rocsteady.doctor.values import ComputeDevice
from rocsteady.model import Risk, Strategy
from rocsteady.plan.circumstances import Circumstances, Goal, histories
from rocsteady.plan.pace import FailureHistory
from rocsteady.plan.planner import Planner
from rocsteady.plan.script_traces import ScriptTraces
from rocsteady.plan.trials import TrialKind, TrialResult
from rocsteady.plan.values import Basis, Option
from rocsteady.run.job import FILE
from rocsteady.run.job.job_file import parse_job
from rocsteady.run.job.values import Job
from rocsteady.store.journal import Journal
from rocsteady.store.location import find_place

CPU = Strategy(device="cpu")
GPU = Circumstances(os="linux", gpus=2, gfx=("gfx1100",), trains_on=ComputeDevice.GPU)
JOB = parse_job('command = ["python", "train.py"]\ntotal = { steps = 7200 }')


def planned(here: Circumstances, *results: TrialResult) -> Planner:
    """Make a plan; the GPU's trials show these results, as it is, and the CPU's a pace."""

    def run_trial(job: Job, strategy: Strategy, kind: TrialKind) -> tuple[TrialResult, ...]:
        del job, kind
        if strategy == Strategy():
            return results
        return (tried(0.1 if strategy.device == "cpu" else 2.0, strategy),)

    planner = Planner(
        JOB, here, Goal(left=7200), run_trial, today=date(2026, 11, 15), say=lambda _: None
    )
    planner.work()
    return planner


def option(options: list[Option], name: str) -> Option:
    return next(each for each in options if each.id == name)


def test_an_attempt_that_was_cut_short_says_nothing_against_the_failure_before_it() -> None:
    planner = planned(GPU, failed("hang-in-backward"), tried(None, step=0))

    assert "trial failed with hang-in-backward" in option(planner.ruled_out, "gpu").rests_on[0]


def test_what_remedies_led_to_and_had_no_time_for_is_tried_on_its_own() -> None:
    cut_short = tried(None, CPU, step=0, remedy="cpu")
    planner = planned(GPU, failed("hang-in-backward"), cut_short)

    assert option(planner.options, "cpu").basis is Basis.TRIAL


def test_a_failure_that_a_fresh_process_gets_over_is_an_option_with_a_risk() -> None:
    seen = ScriptTraces(checkpoints=("out/step-*.pt",))
    failing = replace(tried(2.0), failure="oom-fragmentation", resumes=True, watched=seen)

    survived = option(planned(GPU, failing).options, "gpu")
    assert survived.risk is Risk.MEDIUM
    assert "1 failure in 60 steps here (oom-fragmentation); a new process" in survived.rests_on[0]
    for lost in (
        replace(failing, watched=ScriptTraces()),
        replace(failing, resumes=False),
        replace(failing, failure="script-error"),
    ):
        assert option(planned(GPU, lost).ruled_out, "gpu").basis is Basis.RULED_OUT


def test_cleaned_variables_say_what_the_doctor_found_and_are_one_option() -> None:
    caching = next(each for each in harmful_variables() if "NO_HIP_MEMORY" in each.name)
    found = replace(finding("caching-off"), seen=(f"{caching.name}=1",))
    unset = Strategy(variables={caching.name: None})
    here = replace(
        GPU, harmful=(caching,), findings=(found,), remedied=(("unset-variable", unset),)
    )
    planner = planned(here, failed("oom-fragmentation"), tried(2.0, unset, remedy="unset-variable"))

    on_gpu = [each for each in planner.options if each.id.startswith("gpu")]
    assert [each.id for each in on_gpu] == ["gpu+clean", "gpu+one"]
    assert all(each.rests_on[-1].startswith("caching-off: ") for each in on_gpu)
    assert on_gpu[1].title.startswith("One GPU, ")


def test_where_loaders_hung_before_no_more_of_them_are_advised() -> None:
    slow = replace(tried(1.0), pace=pace(1.0, data=0.8, compute=0.2))
    seen = FailureHistory(failures=3, seconds=1.0, steps=9, kinds=("hang-in-loader",))
    hung = replace(GPU, histories=((Strategy(), seen),))

    for here, wanted in ((GPU, "workers"), (hung, "less work per sample")):
        assert planned(here, slow).limits[0].best.endswith(wanted)


def test_what_a_person_has_mended_since_does_not_count(tmp_path: Path) -> None:
    project, state = tmp_path / "project", tmp_path / "state"
    project.mkdir()
    (project / FILE).write_text('command = ["python", "train.py"]\n')
    leave_runs(
        project, state, Earlier(0, 3.0, "script-error"), Earlier(900, 400.0, "hang-in-loader")
    )
    journal = Journal(find_place(project, state=state))
    stories = tuple(journal.story(line.run.name) for line in journal.runs())
    journal.close()

    ((_, seen),) = histories(stories)
    assert (seen.failures, seen.kinds, seen.steps) == (1, ("hang-in-loader",), 900)
