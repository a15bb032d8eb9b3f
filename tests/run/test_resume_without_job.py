"""Real scripts without a job file: they resume, or nothing of theirs is lost."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest
from resume_table import Case, beside_torch, cases, disturbed
from supervised import ROCSTEADY, Project, until

pytestmark = pytest.mark.slow
CASES = {case.name: case for case in cases()}


@pytest.fixture(scope="session")
def beside(torch_python: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Give an interpreter with torch and the stand-ins."""
    return beside_torch(torch_python, tmp_path_factory.mktemp("python") / "venv")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("u21_flag_newest", marks=pytest.mark.ci),
        pytest.param("u24_rmtree", marks=pytest.mark.ci),
        "t09_readme",
        "f11_hf_parser",
        "u27_hydra",
    ],
)
def test_a_script_that_is_killed_and_deadlocks(name: str, tmp_path: Path, beside: str) -> None:
    """The whole table is that of resume_scripts/resume_table.py."""
    case: Case = CASES[name]

    result = disturbed(case, tmp_path, beside, list(ROCSTEADY))

    assert result.right, result


TRAINS = """
import argparse, os, signal, sys, time
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--resume")
args = parser.parse_args()
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.AdamW(model.parameters())
done = 0
if args.resume IS:
    state = torch.load(args.resume)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    done = state["step"]
with open("log.txt", "LOG") as log:
    for step in range(done + 1, 41):
        if step == 35 and not os.path.exists("killed"):
            open("killed", "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.zero_grad()
        model(torch.ones(4)).sum().backward()
        optimizer.step()
        time.sleep(0.02)
        log.write(f"{step}\\n")
        log.flush()
        if step % 10 == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            torch.save(state, "last.pt")
print("from", done)
"""


def trains(project: Project, condition: str = "is not None", mode: str = "a") -> str:
    return project.script(TRAINS.replace("IS", condition).replace("LOG", mode))


@pytest.mark.ci
def test_a_script_that_starts_over_is_stopped_and_undone(
    project: Project, torch_python: str
) -> None:
    script = trains(project, 'and os.path.exists(args.resume + ".typo")')
    child = project.start("--", torch_python, script)
    until((project.folder / "killed").exists, 60)
    saved = (project.folder / "last.pt").read_bytes()

    ended = project.ended(child, 120)

    assert ended.code == 76, ended.err
    assert (project.folder / "last.pt").read_bytes() == saved
    assert (project.folder / "log.txt").read_text().split()[-1] == "34"
    assert "the script started over instead of resuming: it made steps without reading" in ended.err
    assert [each["outcome"] for each in project.story()["attempts"]][1] == (
        "started over instead of resuming"
    )
    records = project.folder / ".rocsteady/runs" / project.name
    assert (records / "started-over-2/last.pt").exists(), "what it wrote is kept"


def test_an_output_that_each_start_begins_anew_is_not_lost(
    project: Project, torch_python: str
) -> None:
    ended = project.run("--", torch_python, trains(project, mode="w"), within=120)

    assert ended.code == 0, ended.err
    assert "from 30" in ended.out
    assert (project.folder / "log.txt").read_text().split()[0] == "31"
    (copy,) = (project.folder / ".rocsteady/runs" / project.name).rglob("log.txt")
    assert copy.read_text().split() == [str(step) for step in range(1, 35)]
    assert "log.txt" in ended.err


def test_a_script_that_is_killed_again_before_it_imports_torch_resumes_all_the_same(
    project: Project, torch_python: str
) -> None:
    early = """
import os, signal
if os.path.exists("killed") and not os.path.exists("early"):
    open("early", "w").close()
    os.kill(os.getpid(), signal.SIGKILL)
"""
    text = early + TRAINS.replace("IS", "is not None").replace("LOG", "a")

    ended = project.run("--", torch_python, project.script(text), within=300)

    assert ended.code == 0, ended.err
    assert "from 30" in ended.out


def test_a_run_whose_heartbeats_were_removed_is_resumed_all_the_same(
    project: Project, torch_python: str
) -> None:
    text = TRAINS.replace("IS", "is not None").replace("LOG", "a")
    text = text.replace(
        "        optimizer.zero_grad()",
        """
        if step == 20:
            time.sleep(1)
            import shutil
            shutil.rmtree(os.path.dirname(os.environ["ROCSTEADY_PAGES"]))
            time.sleep(1)
        optimizer.zero_grad()""",
    )

    ended = project.run("--", torch_python, project.script(text), within=120)

    assert ended.code == 0, ended.err
    assert "from 30" in ended.out


def test_a_newest_checkpoint_that_is_cut_off_is_moved_aside(
    project: Project, torch_python: str
) -> None:
    text = TRAINS.replace("IS", "is not None").replace("LOG", "a")
    text = text.replace('"last.pt"', 'f"ckpt_{step}.pt"').replace(
        "os.kill(",
        'torch.save(state, "ckpt_34.pt"); os.truncate("ckpt_34.pt", 100); os.kill(',
    )

    ended = project.run("--", torch_python, project.script(text), within=120)

    assert ended.code == 0, ended.err
    assert "from 30" in ended.out
    assert (project.folder / ".ckpt_34.pt.broken").exists()
    assert "moved to .ckpt_34.pt.broken" in ended.err


def test_a_run_whose_only_checkpoint_is_cut_off_starts_from_the_beginning(
    project: Project, torch_python: str
) -> None:
    text = TRAINS.replace("IS", "is not None").replace("LOG", "a")
    text = text.replace("os.kill(", 'os.truncate("last.pt", 100); os.kill(')

    ended = project.run("--", torch_python, project.script(text), within=120)

    assert ended.code == 0, ended.err
    assert "from 0" in ended.out
    assert (project.folder / ".last.pt.broken").stat().st_size == 100


def test_a_run_with_weights_beside_a_checkpoint_that_is_cut_off_is_left_to_a_person(
    project: Project, torch_python: str
) -> None:
    text = TRAINS.replace("IS", "is not None").replace("LOG", "a")
    text = text.replace(
        "os.kill(",
        'torch.save(model.state_dict(), "weights.pt"); os.truncate("last.pt", 100); os.kill(',
    )

    ended = project.run("--", torch_python, project.script(text), within=120)

    assert ended.code != 0
    assert "from 0" not in ended.out
    assert (project.folder / "weights.pt").exists()


def test_a_run_that_was_left_is_taken_over_by_its_name(project: Project, torch_python: str) -> None:
    text = TRAINS.replace("IS", "is not None").replace("LOG", "a")
    script = project.script(text.replace("step == 35 and", "step == 35 and time.sleep(20) or"))
    child = project.start("--", torch_python, script)
    until(lambda: "34" in _text(project.folder / "log.txt"), 60)
    child.kill()
    until(lambda: not project.processes(), 20, lambda: str(project.processes()))
    (project.folder / "killed").touch()
    project.script(text)

    ended = project.run("--resume", project.name, within=120)

    assert ended.code == 0, ended.err
    assert "from 30" in ended.out


def test_what_is_printed_when_a_run_is_stopped_works_when_typed(
    project: Project, torch_python: str
) -> None:
    text = TRAINS.replace("IS", "is not None").replace("LOG", "a")
    script = project.script(text.replace("step == 35 and", "step == 35 and time.sleep(20) or"))
    child = project.start("--", torch_python, script)
    until(lambda: "34" in _text(project.folder / "log.txt"), 60)
    child.send_signal(signal.SIGINT)
    stopped = project.ended(child)
    (project.folder / "killed").touch()
    project.script(text)

    typed = stopped.said[-1].partition("rocsteady ")[2].split()
    assert "beginning" not in stopped.said[-1]
    resumed = project.say(*typed, within=120)
    again = project.say(*typed, within=120)

    assert resumed.code == 0, resumed.err
    assert "from 30" in resumed.out
    assert (again.code, again.out) == (0, "")


def test_a_new_run_continues_from_what_an_earlier_one_wrote(
    project: Project, torch_python: str
) -> None:
    script = trains(project)
    first = project.run("--max-attempts", "1", "--", torch_python, script, within=120)
    shutil.copy(project.folder / "last.pt", project.folder / "copy-of-last.bin")

    again = project.run(
        *("--resume", "auto", "--", torch_python, script), within=120, name=f"{project.name}-2"
    )
    third = project.run(
        *("--resume", "auto", "--", torch_python, script), within=120, name=f"{project.name}-3"
    )

    assert first.code != 0
    assert again.code == 0, again.err
    assert "from 30" in again.out
    assert third.code == 0, third.err
    assert "is done" in third.err
    assert "from" not in third.out


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""
