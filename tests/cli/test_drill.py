"""``rocsteady drill`` as a person types it: real faults, and a folder that stays as it was."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from supervised import Project

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="unconfirmed on Windows")

HURRIED = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[1] / "victims")!r})
import hurried
from rocsteady.probe import drill as drills
hurried.hurry(drills)
hurried.main()
"""
TRAINS = """
    import math, pathlib, sys, time, torch
    torch.manual_seed(0)
    model = torch.nn.Linear(16, 1)
    optimizer = torch.optim.AdamW(model.parameters())
    first, folder = 0, pathlib.Path("checkpoints")
    folder.mkdir(exist_ok=True)
    if len(sys.argv) > 2:
        kept = torch.load(sys.argv[2], weights_only=True)
        model.load_state_dict(kept["model"]); optimizer.load_state_dict(kept["optimizer"])
        first = kept["step"]
    for step in range(first + 1, 201):
        batch = torch.randn(8, 16)
        loss = (model(batch) - batch.mean(1, keepdim=True)).square().mean()
        if not math.isfinite(loss.item()):
            raise FloatingPointError(f"loss is {loss.item()}")
        optimizer.zero_grad(); loss.backward(); optimizer.step()
        time.sleep(0.02)
        if step % 10 == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save({**state, "step": step}, folder / "part")
            (folder / "part").replace(folder / f"step-{step:06}.pt")
    print("DONE")
"""
RESUMES = """
[resume]
arguments = ["--resume", "{checkpoint}"]
checkpoints = ["checkpoints/*.pt"]
"""
FIVE = "hang:backward@25,oom@45,kill@65,segv@85,nan@105"


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    from supervised import Project, until  # noqa: PLC0415 - not on Windows

    made = Project(tmp_path)
    made.program = (sys.executable, "-c", HURRIED)
    try:
        yield made
        until(lambda: not made.processes(), 5.0, lambda: str(made.processes()))
        assert made.left() == []
        ours = [f"rocsteady-drill-{child.pid}-*" for child in made.started]
        assert [path for name in ours for path in Path("/dev/shm").glob(name)] == []
    finally:
        made.close()


def hashed(folder: Path) -> str:
    """Return a hash of every name and every byte below a folder."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        digest.update(os.fsencode(path))
        digest.update(path.read_bytes() if path.is_file() else b"")
    return digest.hexdigest()


def drills(project: Project) -> list[Path]:
    """Return what drills have left."""
    return list((project.home / ".local" / "state" / "rocsteady" / "drills").glob("*"))


@pytest.mark.ci
@pytest.mark.slow
def test_five_faults_are_seen_and_survived(project: Project, torch_python: str) -> None:
    project.script(TRAINS)
    command = json.dumps([torch_python, "train.py"])
    (project.folder / "rocsteady.toml").write_text(f"command = {command}\n{RESUMES}")
    (project.folder / "checkpoints").mkdir()
    (project.folder / "checkpoints" / "step-000199.pt").write_text("of an earlier run")
    before = hashed(project.folder)

    ended = project.say("drill", "--yes", "--json", "--faults", FIVE, within=280)

    told = json.loads(ended.out)
    faults: list[dict[str, Any]] = told["faults"]
    assert ended.code == 0, ended.err
    assert hashed(project.folder) == before
    assert (told["survived"], told["changed"], drills(project)) == (True, [], [])
    assert told["next_command"] == "rocsteady run"
    assert [fault["called"] for fault in faults] == [
        "hang-in-backward",
        "oom-device",
        "killed",
        "segfault",
        "nan-loss",
    ]
    assert [(fault["step"], fault["attempt"]) for fault in faults[:1]] == [(25, 1)]
    assert all(fault["survived"] and fault["seen_after"] < 60 for fault in faults), faults
    assert all(abs(fault["step"] - wanted) <= 10 for fault, wanted in _steps(faults)), faults
    assert all(0 < fault["went_on_from"] <= fault["step"] for fault in faults), faults
    assert "DONE" not in ended.err  # it ends after the last fault
    assert any("the drill ends here" in line for line in ended.said)


MONITOR = """
import threading
def run():
    while True:
        threading.Event().wait(0.5)
threading.Thread(target=run, daemon=True).start()
"""


@pytest.mark.slow
def test_a_thread_that_draws_a_bar_does_not_hide_the_hang(
    project: Project, torch_python: str, tmp_path: Path
) -> None:
    monitor = tmp_path / "site-packages" / "tqdm" / "_monitor.py"  # as tqdm installs and starts it
    monitor.parent.mkdir(parents=True)
    monitor.write_text(MONITOR)
    bar = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'site-packages')!r}); import tqdm._monitor"
    )
    project.script(f"    {bar}\n{TRAINS}")
    command = json.dumps([torch_python, "train.py"])
    (project.folder / "rocsteady.toml").write_text(f"command = {command}\n{RESUMES}")

    ended = project.say("drill", "--yes", "--json", "--faults", "hang:backward@25", within=200)

    (fault,) = json.loads(ended.out)["faults"]
    assert (fault["called"], fault["survived"]) == ("hang-in-backward", True), ended.err


def _steps(faults: list[dict[str, Any]]) -> list[tuple[dict[str, Any], int]]:
    """Return each fault with the step that was asked for; after a resume they are estimates."""
    return list(zip(faults, (25, 45, 65, 85, 105), strict=True))


RESUMES_BY_ITSELF = TRAINS.replace(
    "    if len(sys.argv) > 2:\n        kept = torch.load(sys.argv[2], weights_only=True)\n",
    "    there = sorted(folder.glob('*.pt'))\n"
    "    if there:\n        kept = torch.load(there[-1], weights_only=True)\n",
)


@pytest.mark.slow
def test_how_a_script_resumes_is_read_from_it_where_there_is_no_job_file(
    project: Project, torch_python: str
) -> None:
    """The script is not among what it writes, which is all that an overlay has."""
    project.script(RESUMES_BY_ITSELF)
    before = hashed(project.folder)

    faults = ("--faults", "hang:backward@25,kill@165")  # it is done before the drill would end it
    ended = project.say(
        *("drill", "--yes", "--json", *faults, "--", torch_python, "train.py"), within=240
    )

    told = json.loads(ended.out)
    assert ended.code == 0, ended.err
    assert [fault["went_on_from"] for fault in told["faults"]] == [20, 160]
    assert "Fix " not in ended.err  # a fault that is not the script's
    assert hashed(project.folder) == before


@pytest.mark.slow
def test_a_script_that_cannot_resume_is_said_to(project: Project, torch_python: str) -> None:
    project.script(TRAINS)
    before = hashed(project.folder)

    ended = project.say("drill", "--faults", "kill@25", "--", torch_python, "train.py", within=120)

    words = " ".join(ended.out.split())
    assert ended.code == 1, ended.err
    assert hashed(project.folder) == before
    assert "killed gave up" in words
    assert "survived 0 of 1 fault." in words
    assert "Nothing in this folder was changed." in words
    assert [str(path) in ended.out for path in drills(project)] == [True]


def test_what_a_script_writes_is_not_in_the_folder(project: Project) -> None:
    project.script("open('model.pt', 'w').write('x'); print('DONE')")
    before = hashed(project.folder)

    ended = project.say("drill", "--faults", "kill@5", "--", sys.executable, "train.py")

    assert ended.code == 1  # there is no step
    assert hashed(project.folder) == before
    assert "DONE" in ended.err
    assert "DONE" not in ended.out
    assert "not reached" in ended.out
    (kept,) = drills(project)
    assert len(list(kept.rglob("model.pt"))) == 1
    (log,) = kept.rglob("attempt-1.log")
    assert ended.out.splitlines()[-1] == f"next: rocsteady explain {log}"
    assert project.say("explain", str(log)).code in {0, 1}  # what is named exists
    again = project.say("drill", "--faults", "kill@5", "--", sys.executable, "-c", "print(1)")
    assert again.code == 1
    assert list(kept.rglob("model.pt")) == []  # what an earlier drill left is gone


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--faults", "kill", "--", "python"), "'kill' is not a fault"),
        (("--faults", "explode@5", "--", "python"), "unknown fault 'explode'"),
        (("--faults", "kill@5"), "name a command"),
        (("--faults", "kill@5", "--", "no-such-program"), "no-such-program: not found"),
    ],
)
def test_wrong_usage_is_one_sentence_and_2(
    project: Project, words: tuple[str, ...], told: str
) -> None:
    ended = project.say("drill", *words)

    assert (ended.code, ended.out) == (2, "")
    assert told in " ".join(ended.err.split())
    assert drills(project) == []


def test_paths_outside_the_folder_are_asked_about(project: Project, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    command = ("--", sys.executable, "-c", "print(1)", "--output", out)

    refused = project.say("drill", "--faults", "kill@5", *command)
    allowed = project.say("drill", "--yes", "--faults", "kill@5", *command)

    assert (refused.code, allowed.code) == (2, 1)
    assert f"not protected, because outside this folder: {out}." in " ".join(refused.err.split())
    assert "print(1)" not in refused.out


def test_a_scratch_in_the_folder_itself_is_refused(project: Project) -> None:
    ended = project.say("drill", "--scratch", ".", "--faults", "kill@5", "--", sys.executable)

    assert ended.code == 2
    assert "lies in the folder itself" in ended.err
    assert list(project.folder.iterdir()) == []
