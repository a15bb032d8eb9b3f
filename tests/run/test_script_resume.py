"""A script that tells where its checkpoints lie is one that can resume."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
import rocsteady_train
from supervised import Project, until

from rocsteady.hangs.heartbeat_pages import Resumes
from rocsteady.run.checkpoints.script_resume import (
    checkpoint_folders,
    resume_of,
)
from rocsteady.run.job.done_when import matches
from rocsteady.run.job.values import Resume
from rocsteady.store.account_records import account_folder, keep, kept

HURRIED = Path(__file__).parents[1] / "victims" / "hurried.py"


def told(folder: object, pattern: str = "step-*") -> tuple[Resumes, ...]:
    return (Resumes(folder=str(folder), pattern=pattern),)


@pytest.mark.parametrize(
    ("folder", "pattern"),
    [
        ("/job/checkpoints", "checkpoints/step-*"),
        ("/job/out/run [1]", "out/run [[]1]/step-*"),
        ("/job", "./step-*"),
        ("/seen/checkpoints", "checkpoints/step-*"),
        ("/elsewhere/checkpoints", "/elsewhere/checkpoints/step-*"),
        ("/job/--help", "/job/--help/step-*"),
    ],
)
def test_a_folder_of_the_job_is_named_from_there(folder: str, pattern: str) -> None:
    resume = resume_of(told(folder), [Path("/job"), Path("/seen")])

    assert resume == Resume(
        environment={"ROCSTEADY_RESUME_FROM": "{checkpoint}"}, checkpoints=(pattern,)
    )


def test_what_several_processes_tell_alike_is_one_place() -> None:
    resume = resume_of(told("/job/a") * 3 + told("/job/b", "checkpoint-*"), [Path("/job")])

    assert resume.checkpoints == ("a/step-*", "b/checkpoint-*")
    assert checkpoint_folders(resume) == "a/, b/"


def test_a_strange_name_is_found_and_nothing_else(tmp_path: Path) -> None:
    for name in ("a [1]", "a 1"):
        (tmp_path / name / "step-000000001").mkdir(parents=True)
    resume = resume_of(told(tmp_path / "a [1]"), [tmp_path])

    assert list(matches(tmp_path, resume.checkpoints[0])) == [Path("a [1]/step-000000001")]


def test_it_is_kept_for_whoever_takes_over(tmp_path: Path) -> None:
    resume = resume_of(told("/job/checkpoints"), [Path("/job")])

    assert kept(Resume, tmp_path) is None
    keep(resume, tmp_path)
    assert kept(Resume, tmp_path) == resume
    keep(resume, tmp_path / "gone")  # is no reason to stop


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"\xff", b'{"checkpoints": 3}'])
def test_what_cannot_be_read_is_not_known(tmp_path: Path, content: bytes) -> None:
    keep(resume_of(told("/job"), [Path("/job")]), tmp_path)
    (account_folder(tmp_path) / "Resume").write_bytes(content)

    assert kept(Resume, tmp_path) is None


# ---- Real trainings ----

TRAINS = """
    import json, os, pathlib, signal, sys, time
    import torch
    from torch import nn
    import rocsteady_train

    def main():
        torch.manual_seed(0)
        model = nn.Linear(4, 1)
        data = [(torch.randn(4), torch.randn(1)) for _ in range(1600)]
        loop = rocsteady_train.Loop(
            model=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.01),
            loader=torch.utils.data.DataLoader(data, batch_size=8),
            epochs=1,
            lose_at_most=0.2,
            micro_batch=8,
        )
        print("told", os.environ.get("TOLD_BY_JOB"), flush=True)
        for batch in loop:
            happens(loop)
            time.sleep(0.01)
            loop.step(batch, loss_of(model), reduction="mean")
        print("DONE", loop.steps, float(model.bias))

    def loss_of(model):
        return lambda part: (model(part[0]) - part[1]).square().mean()

    def happens(loop):
        PLACEHOLDER

    main()
"""
NOTHING = "pass"
KILLED_ONCE = """
        if loop.steps == 100 and not pathlib.Path("killed").exists():
            pathlib.Path("killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
"""
TOO_LARGE = """
        if loop.steps == 50 and int(os.environ.get("ROCSTEADY_MICRO_BATCH", "8")) > 2:
            torch.empty(1 << 60, dtype=torch.uint8)
"""
BY_ITSELF = "the script saves and resumes on its own: checkpoints in checkpoints/."


@pytest.fixture
def training(project: Project) -> Project:
    """Give a project in which scripts find rocsteady, and a supervisor with less patience."""
    project.program = (sys.executable, str(HURRIED))
    project.environment["PYTHONPATH"] = str(Path(rocsteady_train.__file__).parents[1])
    return project


def script(project: Project, what: str) -> str:
    return project.script(TRAINS.replace("PLACEHOLDER", what.strip()))


@pytest.mark.slow
def test_from_scratch_is_not_for_a_script_that_resumes(
    training: Project, torch_python: str
) -> None:
    undisturbed = training.run("--", torch_python, script(training, NOTHING), within=180)
    shutil.rmtree(training.folder / "checkpoints")

    ended = training.run(
        *("--resume", "never", "--", torch_python, script(training, KILLED_ONCE)),
        name=f"{training.name}-2",
        within=180,
    )

    assert (undisturbed.code, ended.code) == (0, 0), ended.err
    assert ended.out.splitlines()[-1] == undisturbed.out.splitlines()[-1]
    assert ended.said.count(BY_ITSELF) == 1
    (resumed,) = ended.lines("resumed")
    assert "about" not in resumed
    assert not list(training.folder.glob(".rocsteady/runs/*/aside-*"))
    assert ended.lines("done")[0].startswith("200 steps in")


@pytest.mark.slow
def test_a_run_that_was_left_is_taken_over_at_its_newest_checkpoint(
    training: Project, torch_python: str
) -> None:
    child = training.start("--", torch_python, script(training, NOTHING))
    until(lambda: list(training.folder.glob("checkpoints/step-*")), 120)
    until(lambda: list(training.home.glob(".local/state/rocsteady/runs/*/Resume")), 10)
    child.kill()
    until(lambda: not training.processes(), 10.0, lambda: str(training.processes()))

    ended = training.run("--resume", training.name, within=180)

    assert ended.code == 0, ended.err
    said = "\n".join(ended.said)
    assert "cannot resume" not in said
    assert ended.lines("resumed")
    assert "DONE 200 " in ended.out
    assert "resuming from step" in training.log(2)
    line = training.line()
    assert (line["step"], line["total"]) == (200, 200)


@pytest.mark.slow
def test_the_way_that_a_job_names_comes_first(training: Project, torch_python: str) -> None:
    command = json.dumps([torch_python, script(training, KILLED_ONCE)])
    (training.folder / "rocsteady.toml").write_text(
        f"command = {command}\n[resume]\n"
        'environment = { TOLD_BY_JOB = "{checkpoint}" }\ncheckpoints = ["checkpoints/step-*"]\n'
    )

    ended = training.run(within=180)

    assert ended.code == 0, ended.err
    assert BY_ITSELF not in ended.said
    assert f"told {training.folder}/checkpoints/step-" in training.log(2)


@pytest.mark.slow
def test_out_of_memory_makes_the_parts_smaller(training: Project, torch_python: str) -> None:
    ended = training.run("--", torch_python, script(training, TOO_LARGE), within=240)

    assert ended.code == 0, ended.err
    story = training.story()
    assert {each["failure"]["kind"] for each in story["failures"]} == {"oom-host"}
    parts = [each["strategy"].get("micro_batch") for each in story["attempts"]]
    assert parts == [None, None, 4, 2]
    remedies = training.decided()
    assert remedies[1:3] == ["half-micro-batch", "half-micro-batch"]
    assert "micro_batch=2" in ended.lines("resumed")[-1]


@pytest.mark.slow
def test_a_drill_rehearses_it_without_a_job_file(training: Project, torch_python: str) -> None:
    training.program = (sys.executable, "-m", "rocsteady")
    name = script(training, NOTHING)

    ended = training.say(
        *("drill", "--json", "--yes", "--faults", "kill@120", "--", torch_python, name),
        within=240,
    )

    told = json.loads(ended.out)
    assert ended.code == 0, ended.err
    (fault,) = told["faults"]
    assert fault["survived"]
    assert 0 < fault["went_on_from"] < 120
    assert told["changed"] == []
    assert not (training.folder / "checkpoints").exists()
