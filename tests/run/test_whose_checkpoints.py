"""A new run is not mixed up with an old one: whose checkpoints, whose total, whose folder."""

from __future__ import annotations

import json
import shutil
import sys
import time
import zipfile
from pathlib import Path

import pytest
from supervised import ROCSTEADY, Ended, Project, until

from rocsteady.run.checkpoints.checkpoints import Checkpoints
from rocsteady.run.checkpoints.resume import Origin
from rocsteady.run.job.values import Job, Resume

pytestmark = pytest.mark.slow  # real runs, some seconds each

RESUMES = """
    total = { steps = 400 }
    deadline = "40h"

    [resume]
    arguments = ["--resume", "{checkpoint}"]
    checkpoints = ["checkpoints/*.pt"]
"""
TRAINS = """
    import os, pathlib, sys, time, zipfile
    words = sys.argv[1:]
    folder = pathlib.Path("checkpoints")
    folder.mkdir(exist_ok=True)
    with open("starts", "a") as starts:
        starts.write(" ".join(words) + "\\n")
    given = words[words.index("--resume") + 1] if "--resume" in words else ""
    step = int(zipfile.ZipFile(given).read("step")) if given else 0
    fails = os.environ.get("FAIL")
    for step in range(step + 1, step + 4):
        print(f"step {step}/6", flush=True)
        time.sleep(0.02)
        with zipfile.ZipFile("part", "w") as archive:
            archive.writestr("step", str(step))
        pathlib.Path("part").rename(folder / (os.environ.get("AS") or f"step-{step}.pt"))
    while fails == "wait":
        time.sleep(0.05)
    if fails and not (fails == "once" and given):
        sys.exit(3)
"""
OTHER = "import time; open('starts', 'a').write('other\\n'); time.sleep(600)"


@pytest.fixture
def trains(project: Project) -> Project:
    project.job(RESUMES, project.script(TRAINS))
    return project


def starts(project: Project) -> list[str]:
    """Return the arguments of each start of the script, paths from its folder."""
    return (project.folder / "starts").read_text().replace(f"{project.folder}/", "").splitlines()


def files(project: Project) -> dict[str, bytes]:
    """Return every checkpoint with its content."""
    return {path.name: path.read_bytes() for path in project.folder.glob("checkpoints/*")}


def unfinished(project: Project, *words: str, name: str | None = None) -> Ended:
    """Make a run that fails in the end."""
    project.environment["FAIL"] = "always"
    ended = project.run("--no-workarounds", "--max-attempts", "1", *words, name=name)
    del project.environment["FAIL"]
    return ended


def test_a_command_as_typed_gets_no_resume_argument_at_first(trains: Project) -> None:
    unfinished(trains)
    trains.environment["FAIL"] = "once"

    ended = trains.run("--", sys.executable, "train.py", name=f"{trains.name}-typed")

    assert ended.code == 0, ended.err
    assert starts(trains) == ["", "", "--resume checkpoints/step-3.pt"]
    assert "the command runs as typed" in ended.err


def test_the_total_of_a_job_file_for_another_command_does_not_apply(trains: Project) -> None:
    trains.job(f'name = "calm-otter"\n{RESUMES}', "train.py", "--epochs", "10")

    ended = trains.run("--", sys.executable, "train.py")
    line = trains.line()

    assert ended.code == 0, ended.err
    assert ended.said[0] == (
        f"rocsteady.toml is for another command ({sys.executable} train.py --epochs 10); ignoring"
        " its total, deadline."
    )
    assert (line["step"], line["total"], line["deadline"]) == (3, 6, None)


def test_a_resume_argument_for_another_script_is_not_given(trains: Project) -> None:
    trains.script(TRAINS, "other.py")
    trains.environment["FAIL"] = "always"

    ended = trains.run("--no-workarounds", "--", sys.executable, "other.py")

    assert ended.code == 3
    assert starts(trains) == [""]
    assert "ignoring its total, deadline, resume." in ended.said[0]


@pytest.mark.ci
def test_what_was_left_unfinished_is_continued(trains: Project) -> None:
    unfinished(trains)

    ended = trains.run(name=f"{trains.name}-second")

    assert ended.code == 0, ended.err
    assert starts(trains) == ["", "--resume checkpoints/step-3.pt"]
    assert f"left unfinished by {trains.name}" in ended.err


def test_after_a_run_that_is_done_a_new_one_starts_at_the_beginning(trains: Project) -> None:
    trains.run()
    before = files(trains)

    ended = trains.run(name=f"{trains.name}-second")

    assert ended.code == 0, ended.err
    assert starts(trains) == ["", ""]
    assert f"the last run of this job, {trains.name}, is done" in ended.err
    assert files(trains).keys() == before.keys()


@pytest.mark.ci
def test_fresh_passes_on_only_what_this_run_wrote_and_moves_nothing(trains: Project) -> None:
    unfinished(trains)
    (trains.folder / "checkpoints" / "step-3.pt").rename(trains.folder / "checkpoints/step-9.pt")
    before = files(trains)
    trains.environment["FAIL"] = "once"

    ended = trains.run("--resume", "never", name=f"{trains.name}-second")

    assert ended.code == 0, ended.err
    assert starts(trains) == ["", "", "--resume checkpoints/step-3.pt"]
    assert files(trains)["step-9.pt"] == before["step-9.pt"]


def test_what_another_process_saves_before_the_first_attempt_is_not_the_runs_own(
    tmp_path: Path,
) -> None:
    def save(step: int) -> Path:
        place = tmp_path / f"step-{step}.pt"
        with zipfile.ZipFile(place, "w") as archive:
            archive.writestr("step", str(step))
        return place

    resume = Resume(arguments=("--resume", "{checkpoint}"), checkpoints=("*.pt",))
    job = Job(command=("python", "train.py"), resume=resume)
    checkpoints = Checkpoints(job, tmp_path, tmp_path, Origin())
    checkpoints.begin()

    save(7)
    first = checkpoints.newest()
    save(8)
    checkpoints.started()
    own = save(3)

    assert first is None
    newest = checkpoints.newest()
    assert newest is not None
    assert newest.path == Path(own.name)


def test_a_fresh_run_that_saved_nothing_does_not_lead_back_to_an_older_one(trains: Project) -> None:
    trains.run()
    trains.script("import sys; sys.exit(3)")
    trains.run("--resume", "never", name=f"{trains.name}-second")
    trains.script(TRAINS)

    ended = trains.run(name=f"{trains.name}-third")

    assert ended.code == 0, ended.err
    assert starts(trains) == ["", ""]


@pytest.mark.parametrize(
    ("answer", "code", "second"),
    [("continue", 0, "--resume checkpoints/step-3.pt"), ("quit", 130, None)],
)
def test_a_person_at_a_terminal_is_asked(
    trains: Project, answer: str, code: int, second: str | None
) -> None:
    trains.run()

    terminal = trains.on_terminal(*ROCSTEADY, "run", "--name", f"{trains.name}-second")
    terminal.wait_for("Continue from them, start fresh, or quit?")
    terminal.type(f"{answer}\n")

    assert terminal.code() == code
    assert starts(trains)[1:] == ([] if second is None else [second])


def test_a_run_that_is_resumed_uses_only_its_own_checkpoints(trains: Project) -> None:
    unfinished(trains)
    time.sleep(0.05)
    for path in trains.folder.glob("checkpoints/*"):  # so that the other run leaves them alone
        shutil.copy2(path, trains.folder / f"kept-{path.name}")
    unfinished(trains, "--resume", "auto", name=f"{trains.name}-second")

    ended = trains.run("--resume", trains.name)

    assert ended.code == 0, ended.err
    assert starts(trains) == [
        "",
        "--resume checkpoints/step-3.pt",
        "--resume checkpoints/step-3.pt",
    ]
    again = trains.run("--resume", f"{trains.name}-second")
    assert again.code == 0, again.err
    assert starts(trains)[-1] == "--resume checkpoints/step-6.pt"


def test_a_run_whose_checkpoint_another_has_replaced_is_not_resumed_from_it(
    trains: Project,
) -> None:
    trains.environment["AS"] = "last.pt"
    unfinished(trains)
    unfinished(trains, "--resume", "never", name=f"{trains.name}-second")
    before = files(trains)

    ended = trains.run("--resume", trains.name)

    assert ended.code == 76
    assert f"rocsteady run --resume never -- {sys.executable} train.py" in ended.err
    assert files(trains) == before
    assert len(starts(trains)) == 2


def test_the_same_job_is_not_run_twice_at_once(trains: Project) -> None:
    trains.environment["FAIL"] = "wait"
    first = trains.start()
    until(lambda: "step 3/" in trains.log())

    second = trains.run(name=f"{trains.name}-second")
    train = (sys.executable, "train.py", "--other")
    shares = trains.run("--", *train, name=f"{trains.name}-shares")
    other = trains.start("--", *train[:1], "-c", OTHER, name=f"{trains.name}-other")
    anyway = trains.start("--resume", "never", name=f"{trains.name}-third")
    until(lambda: len(starts(trains)) == 3)

    assert second.code == 76
    assert f"run {trains.name} with the same command is running in this folder" in second.err
    assert shares.code == 76
    assert (
        f"run {trains.name} with the same checkpoints is running in this folder, and both would"
        f" write to 'checkpoints/*.pt'. To stop it: rocsteady stop {trains.name}."
    ) in shares.err
    assert "--resume never" in second.err
    assert "--resume never" in shares.err
    names = [line["run"]["name"] for line in json.loads(trains.say("status", "--json").out)["runs"]]
    assert sorted(names) == sorted([f"{trains.name}{each}" for each in ("-third", "-other", "")])
    for child in (first, other, anyway):
        child.terminate()
        trains.ended(child)


def test_detached_it_keeps_the_choice(trains: Project) -> None:
    trains.run()

    started = trains.run("--detach", "--resume", "auto", name=f"{trains.name}-second")

    assert started.code == 0, started.err
    until(lambda: trains.line(f"{trains.name}-second")["run"]["outcome"] == "done")
    assert starts(trains)[1:] == ["--resume checkpoints/step-3.pt"]


def test_options_that_contradict_are_refused(trains: Project) -> None:
    named = trains.run("--name", "never")
    resume = trains.say("run", "--resume", "x", "--name", "y")

    assert (named.code, resume.code) == (2, 2)
    assert not Path(trains.folder / "starts").exists()
