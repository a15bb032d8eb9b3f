"""A script without a job file: which checkpoint it read at its start shows how it goes on."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import pytest
from rocsteady_train.inside import wire
from supervised import Project

from rocsteady.hangs.heartbeat_pages import CheckpointRead, read_checkpoint
from rocsteady.run.attempt.attempt_end import AttemptEnd
from rocsteady.run.attempt.progress import READ, ProgressCounts
from rocsteady.run.checkpoints.checkpoints import Checkpoints, StepEstimate
from rocsteady.run.job.values import Job

TRAINS = """
import os, signal, sys
from pathlib import Path
import torch

target, source, crashes = Path(sys.argv[1]), Path(sys.argv[2]), [int(at) for at in sys.argv[3:]]
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.AdamW(model.parameters())
done = 0
if source.exists():
    state = torch.load(source)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    done = state["step"]
for step in range(done + 1, 41):
    if step in crashes and not Path(f"crashed-{step}").exists():
        Path(f"crashed-{step}").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    optimizer.zero_grad()
    model(torch.ones(4)).sum().backward()
    optimizer.step()
    if step % 10 == 0:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        torch.save(state, "unfinished")
        os.replace("unfinished", target)
Path("done").write_text(str(done))
"""
SAVED_BEFORE = """
import torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.AdamW(model.parameters())
state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 0}
torch.save(state, "NAME")
"""


def before(project: Project, torch_python: str, name: str) -> None:
    """Leave a checkpoint, as an earlier training does."""
    script = project.script(SAVED_BEFORE.replace("NAME", name), "before.py")
    assert project.run("--", torch_python, script, name=f"{project.name}-0").code == 0


@pytest.mark.slow
def test_a_script_that_replaces_the_file_it_read_is_restarted(
    project: Project, torch_python: str
) -> None:
    before(project, torch_python, "last.pt")
    script = project.script(TRAINS)

    ended = project.run("--", torch_python, script, "last.pt", "last.pt", "15", "35", within=180)

    assert ended.code == 0, ended.err
    assert (project.folder / "done").read_text() == "30"
    assert "resumes on its own" in "\n".join(ended.said)


@pytest.mark.ci
@pytest.mark.slow
def test_a_script_that_starts_from_a_fixed_file_is_not_restarted_over_its_work(
    project: Project, torch_python: str
) -> None:
    before(project, torch_python, "base.pt")
    script = project.script(TRAINS)

    ended = project.run("--", torch_python, script, "out.pt", "base.pt", "35", within=180)

    assert ended.code != 0
    assert len(project.story()["attempts"]) == 1
    assert any("rocsteady init -- " in line for line in ended.said)


@pytest.mark.slow
def test_a_silent_script_goes_on_as_long_as_each_attempt_starts_further(
    project: Project, torch_python: str
) -> None:
    script = project.script(TRAINS.replace("sys.argv[3:]", "sys.argv[3:-1]"))
    crashes = ["15", "25", "35", "36"]  # the second and third at the same step of their process

    ended = project.run(
        *("--", torch_python, script, "last.pt", "last.pt", *crashes, "--resume=latest"),
        within=240,
    )

    assert ended.code == 0, ended.err
    assert len(project.story()["attempts"]) == 5


@pytest.mark.slow
def test_a_script_that_fails_in_each_save_is_given_up(project: Project, torch_python: str) -> None:
    before(project, torch_python, "last.pt")
    broken = TRAINS.replace('os.replace("unfinished", target)', "os.abort()")
    script = project.script(broken)

    ended = project.run("--", torch_python, script, "last.pt", "last.pt", within=240)

    assert ended.code != 0
    assert len(project.story()["attempts"]) <= 4


@pytest.mark.slow
@pytest.mark.parametrize(("wanted", "code"), [(40, 0), (41, 0), (45, 76)])
def test_steps_that_may_not_have_been_counted_are_named(
    project: Project, torch_python: str, wanted: int, code: int
) -> None:
    script = project.script(TRAINS)
    command = json.dumps([torch_python, script, "last.pt", "last.pt", "35"])
    (project.folder / "rocsteady.toml").write_text(
        f"""
command = {command}
[resume]
environment = {{ FROM = "{{checkpoint}}" }}
checkpoints = ["last.pt"]
[done_when]
steps = {wanted}
"""
    )

    ended = project.run(within=180)

    assert ended.code == code, ended.err


def ending(path: Path, written: int) -> AttemptEnd:
    """Make the end of an attempt that read a checkpoint."""
    return msgspec.convert(
        {
            "outcome": "by itself",
            "exit": None,
            "seconds": 1.0,
            "progress_seconds": 1.0,
            "first_step": 1,
            "last_step": 9,
            "wrote_checkpoint": True,
            "found": None,
            "learned": {},
            "processes": [],
            "read_checkpoint": {"path": str(path), "written": written},
        },
        AttemptEnd,
    )


def test_only_what_the_run_wrote_leads_on(tmp_path: Path) -> None:
    file = tmp_path / "base.pt"
    file.touch()
    written = file.stat().st_mtime_ns
    checkpoints = Checkpoints(Job(command=("python",)), tmp_path, tmp_path, None, began=100.0)

    assert not checkpoints.led_on(ending(file, int(101e9))), "of the first attempt none is its own"
    checkpoints.ended(ending(file, written))
    assert not checkpoints.can_resume
    assert not checkpoints.led_on(ending(file, int(99e9)))
    checkpoints.ended(ending(file, int(101e9)))
    assert checkpoints.can_resume


def test_of_several_hosts_only_one_writes_what_all_resume_from(tmp_path: Path) -> None:
    job = Job(command=("torchrun", "--max-restarts", "3", "train.py"))
    checkpoints = Checkpoints(job, tmp_path, tmp_path, None, began=100.0)
    assert not checkpoints.can_resume

    checkpoints.others_write = True

    assert checkpoints.can_resume


def test_an_attempt_that_saves_over_what_it_began_with_is_further(tmp_path: Path) -> None:
    file, log = tmp_path / "last.pt", tmp_path / "log"
    file.touch()
    job, none = Job(command=("python",)), StepEstimate(low=0, high=0, key="")
    checkpoints = Checkpoints(job, tmp_path, tmp_path, None, began=100.0)
    counts = ProgressCounts()

    def passes(began_with: int, saved: int) -> bool:
        os.utime(file, ns=(saved, saved))
        end = checkpoints.counted(ending(file, began_with), none, log)
        return counts.passes(None, end.own_counts)

    old, first, second, third = (int(each * 1e9) for each in (99, 101, 102, 103))
    assert not passes(old, old), "of an earlier run, and nothing was saved"
    checkpoints.ended(ending(file, old))
    assert passes(old, first)
    assert not passes(first, first), "which the last attempt was counted for"
    assert passes(first, second)
    assert not passes(second, second)
    assert passes(second, third)


def test_each_later_start_is_further() -> None:
    counts = ProgressCounts()

    told = [counts.passes(None, {READ: written}) for written in (5, 5, 7, 6)]

    assert told == [True, False, True, False]


@pytest.mark.parametrize("content", [b"", b"{}", b"[", b'{"version":9,"path":"/a","written":1}'])
def test_a_note_that_is_none_is_passed_over(tmp_path: Path, content: bytes) -> None:

    (tmp_path / f"12{wire.READ_SUFFIX}").write_bytes(content)
    assert read_checkpoint(tmp_path) is None
    whole = b'{"version":1,"path":"/a","written":1}'
    (tmp_path / f"13{wire.READ_SUFFIX}").write_bytes(whole)
    assert read_checkpoint(tmp_path) == CheckpointRead(path="/a", written=1)
