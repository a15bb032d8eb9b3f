"""What a run decides in situations that people had, each with what a good engineer would do.

The scripts print their steps, so that no torch is needed where none takes part.
"""

from __future__ import annotations

import os
import shlex
import sys
import zipfile
from typing import Any

import pytest

if os.name == "nt":
    pytest.skip("real runs are of POSIX; Windows is unconfirmed", allow_module_level=True)

from supervised import Ended, Project

TRAINS = """
    import os, pathlib, sys, time
    steps = pathlib.Path("steps")
    def made():
        return len(steps.read_text()) if steps.exists() else 0
    def train(last, of=80, pause=0.01):
        for step in range(1, last + 1):
            with steps.open("a") as stream: stream.write(".")
            print(f"step {step}/{of} loss 0.5", flush=True)
            time.sleep(pause)
"""
DONE_WHEN = """
    [done_when]
    steps = 80
    files = [{ path = "model.pt", kind = "any" }]
"""
WRITES = """
    pathlib.Path("model.pt").write_text("x" * 100)
"""


def carry_out(project: Project, script: str, job: str = "") -> tuple[Ended, dict[str, Any]]:
    """Run a script to its end, with a job file or without; return that end, and its story."""
    name = project.script(TRAINS + script)
    if job:
        project.job(job, name)
    ended = project.run(*(() if job else ("--", sys.executable, name)))
    return ended, project.story()


def steps_made(project: Project) -> int:
    """Return the steps by the script's own count, of all its lives."""
    return len((project.folder / "steps").read_text())


# ---- What fails after the training ----

CATCHES = """import traceback
    try: {}['accuracy']
    except KeyError: traceback.print_exc(); sys.exit(1)"""
FAILS_AFTERWARDS = {
    "an error": ("{}['accuracy']", "KeyError: 'accuracy'"),
    "an error that it caught": (CATCHES, "KeyError: 'accuracy'"),
    "an exit": ("sys.exit(3)", "then: exit code 3"),
    "a kill": ("os.kill(os.getpid(), 9)", "killed"),
}


@pytest.mark.parametrize("end", FAILS_AFTERWARDS)
def test_a_training_that_is_done_is_done_whatever_fails_afterwards(
    project: Project, end: str
) -> None:
    last, named = FAILS_AFTERWARDS[end]

    ended, story = carry_out(project, f"    train(80)\n{WRITES}    {last}\n", DONE_WHEN)

    assert (ended.code, story["run"]["outcome"], story["state"]) == (0, "done", "done"), ended.err
    assert (steps_made(project), len(story["attempts"])) == (80, 1)
    assert len(ended.lines("done")) == 1
    assert named in ended.lines("done")[0]
    assert not ended.lines("crashed")
    assert story["attempts"][0]["result"]["trained"] is True
    assert story["next_step"]["action"] != "nothing"


@pytest.mark.parametrize(
    ("script", "job"),
    [
        (f"    train(40)\n{WRITES}    sys.exit(3)\n", DONE_WHEN),  # half of its steps
        ("    train(80)\n    sys.exit(3)\n", DONE_WHEN),  # no model
        (f"    train(80, of=200)\n{WRITES}    sys.exit(3)\n", DONE_WHEN),  # it has more to do
        (f"    train(80)\n{WRITES}    sys.exit(3)\n", "\n"),  # nothing says what done is
        (
            f"    train(40, of='?')\n{WRITES}    os.kill(os.getpid(), 9)\n",
            '[done_when]\nfiles = [{ path = "model.pt", kind = "any" }]\n',  # a checkpoint, say
        ),
    ],
)
def test_what_ends_before_its_training_is_done_is_not(
    project: Project, script: str, job: str
) -> None:
    name = project.script(TRAINS + script)
    project.job(job, name)

    ended = project.run("--max-attempts", "1")

    assert ended.code in (3, 137), ended.err
    assert project.story()["run"]["outcome"] == "ended, not done"
    assert not ended.lines("done")


# ---- Limits of the process ----

BY_A_SHELL = "ulimit -f 100; exec python3 save.py"  # below rocsteady, which has no such limit
LIMITS = {
    "a write": "pathlib.Path('last.pt').write_bytes(bytes(400_000))",
    "a signal": """import signal; signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    pathlib.Path('last.pt').write_bytes(bytes(400_000))""",
}


@pytest.mark.parametrize("reached", LIMITS)
def test_a_limit_on_the_size_of_files_is_named_and_not_waited_for(
    project: Project, reached: str
) -> None:
    project.script(f"{TRAINS}    train(20)\n    {LIMITS[reached]}\n", "save.py")

    ended = project.run("--", "bash", "-c", BY_A_SHELL, within=30)

    story = project.story()
    assert ended.code == 76, ended.err
    assert [row["failure"]["kind"] for row in story["failures"]] == ["file-size-limit"]
    assert not ended.lines("waiting")
    assert any("ulimit -f" in line for line in ended.lines("gave up")), ended.err


@pytest.mark.slow
def test_a_checkpoint_that_reaches_the_limit_is_not_taken_for_a_full_disk(
    project: Project, torch_python: str
) -> None:
    saves = "import torch\ntorch.save(torch.zeros(200_000), 'last.pt')\n"
    project.script(saves, "save.py")

    ended = project.run("--", "bash", "-c", f"ulimit -f 500; exec {torch_python} save.py")

    assert ended.code == 76, ended.err
    kinds = [row["failure"]["kind"] for row in project.story()["failures"]]
    assert kinds == ["file-size-limit"]


# ---- How a script ended ----

RESUMES = """
    [resume]
    checkpoints = ["step-*.pt"]
    arguments = ["--resume", "{checkpoint}"]
"""
SAVES = """
    import zipfile
    first = int(zipfile.ZipFile(sys.argv[2]).read("step")) if len(sys.argv) > 2 else 0
    for step in range(first + 1, 81):
        print(f"step {step}/80 loss 0.5", flush=True)
        if step == 34 and not first: HERE
        if step % 10 == 0:
            with zipfile.ZipFile("part", "w") as archive: archive.writestr("step", str(step))
            os.rename("part", f"step-{step:03}.pt")
        time.sleep(0.01)
"""
ENDS: dict[str, tuple[str, int, list[tuple[str, str]]]] = {
    # what ends it, the exit code, and the failures with their lines
    "a module that is missing": ("import sklearnn", 1, [("script-error", "train.py:11")]),
    "a mistake": ("train(3); raise ValueError('17')", 1, [("script-error", "train.py:11")]),
    "an unknown option": (
        "import argparse; argparse.ArgumentParser().parse_args(['--stepz'])",
        2,
        [("script-error", "")],
    ),
    "a code of its own": ("train(3); sys.exit(3)", 3, [("unknown", "")]),
    "a question": ("train(3); input('go? ')", 1, [("script-error", "train.py:11")]),
    "a warning like out of memory": (
        "train(40); print('CUDA out of memory, using smaller chunks'); train(80)",
        0,
        [],
    ),
    "an error that it caught": (
        """import traceback; train(40)
    try: 1 / 0
    except ZeroDivisionError: traceback.print_exc()
    train(80)""",
        0,
        [],
    ),
    "tries of its own": (
        """train(40)
    for n in range(3): print(f'attempt {n} failed, retrying', flush=True); time.sleep(2)
    train(80)""",
        0,
        [],
    ),
    "a program that it waits for": (
        "import subprocess; train(40); subprocess.run(['sleep', '8']); train(80)",
        0,
        [],
    ),
}


@pytest.mark.parametrize("end", ENDS)
def test_what_a_person_must_mend_is_not_tried_again_and_what_is_none_is_left_alone(
    project: Project, end: str
) -> None:
    last, code, failures = ENDS[end]

    ended, story = carry_out(project, f"    {last}\n")

    found = [(row["failure"]["kind"], row["failure"].get("line", "")) for row in story["failures"]]
    assert (ended.code, len(story["attempts"]), found) == (code, 1, failures), ended.err
    assert story["state"] == ("failed" if code else "done")
    action = story["next_step"]["action"]
    assert (action == "nothing") == (code == 0)
    assert (action == "fix the script") == ("script-error" in str(failures))


def test_an_error_that_is_printed_last_is_told_though_the_run_is_done(project: Project) -> None:
    says = 'print("[2026-11-19 20:00:01] ERROR: export failed, model not written")'

    ended, story = carry_out(project, f"    train(80)\n    {says}\n")

    assert (ended.code, story["state"]) == (0, "done"), ended.err
    assert "Nothing went wrong" not in story["happened"]
    assert "export failed" in story["happened"]
    assert story["next_step"]["action"] == "fix the cause"


@pytest.mark.parametrize(
    ("happens", "kind"),
    [
        ("os.kill(os.getpid(), 11)", "segfault"),
        ("os.kill(os.getpid(), 9)", "killed"),
        ("raise RuntimeError('HIP error: unspecified launch failure')", "gpu-launch-failure"),
    ],
)
def test_what_happens_once_costs_one_restart_from_the_newest_checkpoint(
    project: Project, happens: str, kind: str
) -> None:
    ended, story = carry_out(project, SAVES.replace("HERE", happens), RESUMES)

    assert (ended.code, story["run"]["outcome"]) == (0, "done"), ended.err
    assert [row["failure"]["kind"] for row in story["failures"]] == [kind]
    assert len(story["attempts"]) == 2
    assert [line.split(",")[0] for line in ended.lines("resumed")] == ["step 30"], ended.err


@pytest.mark.parametrize(
    ("ends", "resumes", "code"),
    [
        ("os._exit(3)", True, 3),
        ("os.kill(os.getpid(), 11)", True, 76),
        ("os.kill(os.getpid(), 11)", False, 139),  # before a step: it is not tried again
    ],
)
def test_a_crash_that_comes_again_ends_with_the_scripts_code_only_if_its_cause_is_unknown(
    project: Project, ends: str, code: int, *, resumes: bool
) -> None:
    saves = SAVES.replace("if step == 34 and not first: HERE", f"if step == 34: {ends}")
    script = saves if resumes else f"    {ends}\n"
    ended, story = carry_out(project, script, RESUMES if resumes else "")

    assert (ended.code, len(story["attempts"])) == (code, 1 + resumes), ended.err
    how = f"--resume {project.name}" if resumes else f"--resume never -- {sys.executable}"
    assert f"To try again: rocsteady run {how}" in ended.err
    assert story["next_step"]["command"].startswith(f"rocsteady run {how}")


@pytest.mark.parametrize(
    ("raises", "line"),
    [
        ("raise KeyboardInterrupt('enough')", "train.py:12"),
        ("if made(): raise KeyboardInterrupt", "train.py:12"),
    ],
)
def test_an_interrupt_that_the_script_raises_is_its_own_error(
    project: Project, raises: str, line: str
) -> None:
    ended, story = carry_out(project, f"    train(3)\n    {raises}\n")

    failure = story["failures"][0]["failure"]
    assert (ended.code, len(story["attempts"])) == (130, 1), ended.err
    assert (failure["kind"], failure["line"]) == ("script-error", line)


HANDLES = """
    import signal
    def handler(*_):
        raise KeyboardInterrupt
    signal.signal(signal.SIGINT, handler)
"""


@pytest.mark.parametrize("handler", ["", HANDLES])
def test_an_interrupt_that_was_sent_is_somebodys(project: Project, handler: str) -> None:
    sends = f"    train(3)\n{handler}    os.kill(os.getpid(), 2)\n    time.sleep(9)\n"

    ended, story = carry_out(project, sends)

    assert (ended.code, len(story["attempts"])) == (130, 1), ended.err
    assert story["failures"][0]["failure"]["kind"] == "interrupted"


@pytest.mark.parametrize(
    ("last", "title"),
    [
        ("os._exit(1)", "Exit code 1, no error message"),
        ("print('error: no space for rent'); os._exit(4)", "Exit code 4: error: no space for rent"),
        ("os.kill(os.getpid(), 12)", "Killed by SIGUSR2, no error message"),
    ],
)
def test_an_end_without_an_error_is_named_by_what_it_is(
    project: Project, last: str, title: str
) -> None:
    name = project.script(f"{TRAINS}    train(3)\n    {last}\n")

    project.run("--max-attempts", "1", "--", sys.executable, name)

    failure = project.story()["failures"][0]["failure"]
    assert (failure["kind"], failure["title"]) == ("unknown", title)


def test_an_evaluation_that_fails_in_a_shell_script_is_named(project: Project) -> None:
    python = shlex.quote(sys.executable)
    project.script(f"{TRAINS}    train(80)\n", "train.py")
    project.script("import sys\nprint('no test data')\nsys.exit(1)\n", "evaluate.py")
    project.script(f"set -e\n{python} train.py\n{python} evaluate.py\n", "run.sh")

    ended = project.run("--", "bash", "run.sh")

    story = project.story()
    assert (ended.code, len(story["attempts"])) == (1, 1), ended.err
    assert story["failures"][0]["failure"]["title"].startswith("All 80 steps were made")
    assert "without finishing" not in story["happened"]


def test_a_bundle_has_the_evidence_of_a_crash_and_no_secret(project: Project) -> None:
    project.environment["WANDB_API_KEY"] = "c0ffee11c0ffee22c0ffee33c0ffee44"
    fails = "print('key', os.environ['WANDB_API_KEY']); os.kill(os.getpid(), 11)"
    ended, _ = carry_out(project, f"    train(30)\n    {fails}\n")
    told = project.say("report", project.name, "--bundle")

    assert (ended.code != 0, told.code) == (True, 0), told.err
    with zipfile.ZipFile(next(project.folder.glob("*.zip"))) as archive:
        texts = {name: archive.read(name).decode() for name in archive.namelist()}
    assert "step 30/80" in texts["evidence-1/log-tail.txt"]
    assert not [name for name, text in texts.items() if "c0ffee22" in text]


# ---- A loss that is no number ----

PRINTS = """
    for step in range(1, 41):
        loss = {loss}
        print(f"step {{step}}/40 loss {{loss}}", flush=True)
        time.sleep(0.02)
"""


@pytest.mark.parametrize("spoilt", ["nan", "inf", "-Infinity", "nan.0"])
def test_a_loss_that_stays_no_number_is_a_trouble_with_its_step(
    project: Project, spoilt: str
) -> None:
    prints = PRINTS.format(loss=f"0.5 if step < 25 else '{spoilt}'")

    ended, story = carry_out(project, prints)

    assert (ended.code, len(story["attempts"])) == (0, 1), ended.err
    assert 25 <= story["attempts"][0]["result"]["not_finite"] <= 40  # it looks now and then
    assert "Nothing went wrong" not in story["happened"]
    assert story["next_step"]["action"] == "fix the cause"
    assert len([line for line in ended.said if "NaN or infinite" in line]) == 2


def test_a_loss_that_recovers_is_none(project: Project) -> None:
    prints = PRINTS.format(loss="float('nan') if step % 10 == 5 else 0.5")

    ended, story = carry_out(project, prints)

    assert ended.code == 0
    assert "not_finite" not in story["attempts"][0]["result"]
    assert "Nothing went wrong" in story["happened"]
    assert "NaN" not in ended.err


@pytest.mark.slow
def test_a_loss_that_nobody_prints_is_seen_in_torch(project: Project, torch_python: str) -> None:
    name = project.script("""
        import time, torch
        weight = torch.ones(4, requires_grad=True)
        optimizer = torch.optim.SGD([weight], lr=0.01)
        for step in range(150):
            (weight.square().sum() + (float("nan") if step >= 10 else 0)).backward()
            optimizer.step()
            time.sleep(0.05)
    """)

    ended = project.run("--", torch_python, name)

    story = project.story()
    assert ended.code == 0, ended.err
    assert 10 <= story["attempts"][0]["result"]["not_finite"] <= 60  # it looks once a second
    assert story["next_step"]["action"] == "fix the cause"
