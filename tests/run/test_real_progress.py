"""Only real progress counts, and a restart says what it repeats."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import rocsteady_train
from cases import HERE as VICTIMS
from supervised import Project

RESUMES = """
    [resume]
    arguments = ["--resume", "{checkpoint}"]
    checkpoints = ["checkpoints/*.pt"]
"""
FORGETS_ITS_STEP = """
    import os, pathlib, sys, time, torch
    pathlib.Path("checkpoints").mkdir(exist_ok=True)
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    if sys.argv[1:]:
        model.load_state_dict(torch.load(sys.argv[2], weights_only=True))
    for step in range(1, 401):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        print(f"step {step}/400", flush=True)
        time.sleep(0.02)
        if step % 50 == 0:
            torch.save(model.state_dict(), "checkpoints/part")
            os.rename("checkpoints/part", "checkpoints/last.pt")
        if step == 80:
            os.kill(os.getpid(), 11)
"""
ONE_STEP_MORE = """
    import os, pathlib, sys, time, zipfile
    pathlib.Path("checkpoints").mkdir(exist_ok=True)
    option = "--seed"
    first = int(zipfile.ZipFile(sys.argv[2]).read("step")) if sys.argv[1:] else 0
    with open("starts", "a") as starts:
        starts.write("x")
    last = 9 + os.path.getsize("starts")
    for step in range(first + 1, last + 1):
        print(f"step {step}/400", flush=True)
        time.sleep(0.02)
        if step == 5:
            with zipfile.ZipFile("checkpoints/last.pt", "w") as archive:
                archive.writestr("step", str(step))
    os.kill(os.getpid(), 11)
"""
ADDS_ROWS = """
    import os, time, torch
    first = not os.path.exists("rows.csv")
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(20):
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        with open("rows.csv", "a") as rows:
            rows.write("a row\\n")
        time.sleep(0.02)
    if first:
        time.sleep(0.5)
        os.kill(os.getpid(), 11)
"""
LOOPS = """
    import os, time, torch, rocsteady_train
    from torch.utils.data import DataLoader, TensorDataset
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(TensorDataset(torch.ones(100, 4), torch.ones(100, 1)), batch_size=1)
    loop = rocsteady_train.Loop(model=model, optimizer=optimizer, loader=loader, epochs=1)
    for number, batch in enumerate(loop, 1):
        loop.step(batch, lambda part: (model(part[0]) - part[1]).square().mean())
        time.sleep(0.02)
        if number == 60:
            os.kill(os.getpid(), 11)
    print("DONE", loop.steps)
"""
STUCK = "3 tries from the same checkpoint, and none got to the next one"


@pytest.fixture
def hurried(project: Project) -> Project:
    """Give a project whose supervisor does not wait after quick crashes."""
    project.program = (sys.executable, str(VICTIMS / "without_back_off.py"))
    return project


@pytest.mark.slow
def test_a_resume_that_forgets_the_step_is_no_progress(hurried: Project, torch_python: str) -> None:
    script = hurried.script(FORGETS_ITS_STEP)
    (hurried.folder / "rocsteady.toml").write_text(
        f"command = ['{torch_python}', '{script}']\n{RESUMES}"
    )

    ended = hurried.run(within=180)

    assert ended.code == 76, ended.err
    steps = [attempt["last_step"] for attempt in hurried.story()["attempts"]]
    assert 1 < len(steps) <= 4
    assert all(abs(step - 80) <= 2 for step in steps)
    assert abs(hurried.line()["step"] - 80) <= 2


def test_one_step_more_each_time_is_not_further(hurried: Project) -> None:
    hurried.job(RESUMES, hurried.script(ONE_STEP_MORE))

    ended = hurried.run("--no-workarounds", "--max-attempts", "9")

    assert ended.code == 76, ended.err
    assert STUCK in ended.err
    assert [attempt["last_step"] for attempt in hurried.story()["attempts"]] == [10, 11, 12, 13]


@pytest.mark.slow
def test_a_fault_within_one_save_interval_does_not_trap_the_loop(
    hurried: Project, torch_python: str
) -> None:
    hurried.environment["PYTHONPATH"] = str(Path(rocsteady_train.__file__).parents[1])

    ended = hurried.run("--", torch_python, hurried.script(LOOPS), within=240)

    assert ended.code == 0, ended.err
    assert "DONE 100" in ended.out
    assert len(hurried.story()["attempts"]) > 2  # the third was asked to save before the fault


@pytest.mark.slow
def test_a_script_that_adds_rows_is_not_restarted_without_a_word(
    hurried: Project, torch_python: str
) -> None:
    ended = hurried.run("--", torch_python, hurried.script(ADDS_ROWS), within=120)

    assert ended.code == 0, ended.err
    said = "\n".join(ended.said)
    assert len(ended.lines("retrying")) == 1
    assert re.search(r"1 file written by the run was backed up to \S+/aside-1: rows.csv\.", said)
    assert "Lines that the script appends to them may be duplicated." in said
    aside = hurried.folder / ".rocsteady" / "runs" / hurried.name / "aside-1" / "rows.csv"
    assert aside.read_text() == "a row\n" * 20


def test_a_clock_that_is_set_back_makes_no_duration_negative(project: Project) -> None:
    project.program = (sys.executable, str(VICTIMS / "clock_set_back.py"))
    project.job(
        "done_when = { files = [{ path = 'model.json', kind = 'json' }], within = '1m' }",
        project.script("import time; time.sleep(3); open('model.json', 'w').write('{}')"),
    )

    ended = project.run()
    page = project.say("report", project.name).out

    assert ended.code == 0, ended.err
    assert re.search(r"in [3-9]\.\d s", ended.lines("done")[0])
    assert re.search(r"\| [3-9]\.\d s \| exit code 0", page)
    assert re.search(r"The run finished \(0 steps\) in [3-9]\.\d s", page)
    assert not re.search(r"(?<!\w)-\d", page + ended.err)  # no negative number
