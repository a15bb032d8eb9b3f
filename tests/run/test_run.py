"""A run as a person sees it: done means done, whose job file, what is listed and reported."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import socket
import sys
from pathlib import Path

import pytest
from cases import HERE as VICTIMS
from supervised import ROCSTEADY, Project, until

from rocsteady.run.job.job_file import read_job

JOBS = Path(__file__).parent / "job"
TRAINS = """
    import json, os, pathlib, sys, zipfile
    without = os.environ.get("WITHOUT", "")
    out = pathlib.Path("TRAINING")
    out.mkdir(exist_ok=True)
    epochs = int(sys.argv[sys.argv.index("--epochs") + 1]) - (without == "epoch")
    for epoch in range(1, epochs + 1):
        print(f"Epoch {epoch}/{sys.argv[2]} loss: {'nan' if without == 'loss' else 0.5}")
    if without == "memory":
        print("RuntimeError: HIPBLAS_STATUS_ALLOC_FAILED when calling hipblasCreate(handle)")
    if without != "model":
        with zipfile.ZipFile(out / "m.pt", "w") as archive:
            archive.writestr("m/data.pkl", bytes(range(256)) * 64)
    if without == "whole model":
        (out / "m.pt").write_bytes((out / "m.pt").read_bytes()[:-5])
    if without != "metadata":
        (out / "m_metadata.json").write_text("{" if without == "whole metadata" else "{}")
    if without != "word":
        print("Training completed successfully")
"""
MODEL, METADATA = "done_when.files[0]: ", "done_when.files[1]: "
BOTH = [
    ("", []),
    ("model", [f"{MODEL}no file TRAINING/*.pt"]),
    ("whole model", [f"{MODEL}TRAINING/m.pt is cut short or damaged"]),
    ("metadata", [f"{METADATA}no file TRAINING/"]),
    ("whole metadata", [f"{METADATA}TRAINING/m_metadata.json is not JSON"]),
    ("new model", [f"{MODEL}TRAINING/m.pt is from before this run", METADATA]),
    ("epoch", ["done_when.epochs: "]),
]
ONLY_B = [
    ("loss", ["done_when.absent_text: the log has 'loss: nan'"]),
    ("memory", ["done_when.absent_text: the log has 'HIPBLAS_STATUS_ALLOC_FAILED'"]),
    ("word", ["done_when.present_text: the log does not contain 'Training completed"]),
]
STEPS = """
    import sys, time
    for step in range(1, int(sys.argv[1]) + 1):
        print(f"step {step}/{sys.argv[1]}", flush=True)
        time.sleep(0.05)
"""


@pytest.mark.parametrize(
    ("note", "without", "expected"),
    [("b", *case) for case in (*BOTH, *ONLY_B)] + [("d", *case) for case in BOTH],
)
def test_done_means_done_and_what_is_missing_is_named(
    project: Project, note: str, without: str, expected: list[str]
) -> None:
    kept = (JOBS / f"job_{note}.toml").read_text()
    script = project.script(TRAINS)
    words = read_job(JOBS / f"job_{note}.toml").job.command[2:]
    rest = re.sub(r"^command = .*$|^gpus_busy = .*$", "", kept, flags=re.MULTILINE)
    project.job(rest, script, *words)
    project.environment["WITHOUT"] = without
    if without == "new model":  # the files are those of an earlier run
        project.script("print('Epoch 3/3: Training completed successfully')")
        (project.folder / "TRAINING").mkdir()
        for name, content in (("m.pt", b"PK"), ("m_metadata.json", b"{}")):
            (project.folder / "TRAINING" / name).write_bytes(content)
            os.utime(project.folder / "TRAINING" / name, (1e9, 1e9))

    ended = project.run()

    assert ended.code == (76 if expected else 0)
    missing = ended.lines("gave up")
    assert len(missing) == bool(expected)
    assert all(each in missing[0] for each in expected)
    assert project.line()["run"]["outcome"] == ("ended, not done" if expected else "done")


def test_gpus_that_nobody_can_ask_are_not_known_to_have_been_busy(project: Project) -> None:
    project.job("done_when = { gpus_busy = 2 }", project.script("print('hello')"))

    ended = project.run()

    if not Path("/sys/class/kfd").exists():
        assert ended.code == 76
        assert "done_when.gpus_busy: 2 GPUs busy required" in ended.lines("gave up")[0]


def test_a_job_file_is_confirmed_on_first_use_if_its_command_changed_or_it_is_not_ones_own(
    project: Project,
) -> None:
    file = project.folder / "rocsteady.toml"
    project.job("# a comment", project.script("open('ran', 'a').write('x')"))
    ran = project.folder / "ran"

    new = project.say("run")
    typed = new.err.rpartition("allow it: rocsteady ")[2].split()
    allowed_first = project.say(*typed)
    file.write_text(file.read_text() + "\n# another\nbudget = 5\n")
    edited = project.say("run")
    file.write_text(
        file.read_text().replace("train.py", "train.py', '\u202e--more").replace("'", '"')
    )
    changed = project.say("run")
    allowed = project.say("run", "--yes")
    file.write_text(file.read_text() + "# \u202ehidden")
    file.chmod(0o666)
    foreign = project.say("run")

    ends = (new, allowed_first, edited, changed, allowed, foreign)
    assert [ended.code for ended in ends] == [2, 0, 0, 2, 0, 2], changed.err
    assert ran.read_text() == "xxx"
    shown = [line for line in changed.err.splitlines() if line[:2] in {"- ", "+ "}]
    assert shown[0].endswith("train.py")
    assert shown[1].endswith("train.py '\\u202e--more'")
    assert "another" not in changed.err  # only the change is shown
    assert "other users can write to it" in foreign.said[0]
    assert "# \\u202ehidden" in foreign.err


@pytest.mark.parametrize("words", [("run",), ("plan",), ("drill", "--faults", "kill@5")])
def test_what_a_cloned_job_file_adds_to_a_typed_command_is_asked_about(
    project: Project, words: tuple[str, ...]
) -> None:
    told = json.dumps([sys.executable, "-c", "open('told', 'w')"])
    project.job(f"[notify]\ncommand = {told}", project.script("open('ran', 'w')"))

    refused = project.say(*words, "--", sys.executable, "train.py")

    assert refused.code == 2, refused.err
    assert "+ notify.command: " in refused.err
    assert not (project.folder / "told").exists()
    assert not (project.folder / "ran").exists()
    if words == ("run",):
        typed = shlex.split(refused.err.rpartition("allow it: rocsteady ")[2])
        assert project.say(*typed).code == 0
        until((project.folder / "told").exists)


def test_a_person_at_a_terminal_is_asked(project: Project) -> None:
    project.job("", project.script("open('ran', 'a').write('x')"))
    for answer, code in (("n\n", 76), ("y\n", 0)):
        terminal = project.on_terminal(*ROCSTEADY, "run")
        terminal.wait_for("Use it?")
        terminal.type(answer)
        assert terminal.code() == code
    assert (project.folder / "ran").read_text() == "x"


def test_options_of_the_command_are_the_commands_own(project: Project) -> None:
    script = project.script("import sys; print(sys.argv[1:])")

    ended = project.run(sys.executable, script, "--detach", "--name", "x", "--resume", "--yes")

    assert ended.out == "['--detach', '--name', 'x', '--resume', '--yes']\n"


def test_a_job_file_with_a_name_numbers_its_runs(project: Project) -> None:
    project.job(f'name = "{project.name}"', project.script("print('hello')"))

    for name in (project.name, f"{project.name}-2"):
        assert project.say("run", "--yes").code == 0
        assert project.line(name)["run"]["outcome"] == "done"
    taken = project.run()
    assert (taken.code, "already" in taken.err) == (2, True)


@pytest.mark.slow
def test_runs_lists_step_rate_progress_and_time_left(project: Project) -> None:
    child = project.start("--", sys.executable, project.script(STEPS), "600")
    until(lambda: (project.line().get("step") or 0) > 100)

    line = project.line()

    assert (line["alive"], line["total"], line["attempts"]) == (True, 600, 1)
    assert 10 < line["rate"] < 21
    assert line["seconds_left"] == pytest.approx((600 - line["step"]) / line["rate"], rel=0.01)
    assert project.name in project.say("status").out
    child.send_signal(signal.SIGTERM)
    assert project.ended(child).code == 143


def test_a_total_in_the_job_file_is_used(project: Project) -> None:
    project.job("total = { steps = 77 }", project.script(STEPS), "20")

    assert project.run().code == 0
    assert project.line()["total"] == 77


def test_detached_it_goes_on_without_us_and_can_be_ended(project: Project) -> None:
    script = project.script(STEPS)

    ended = project.run("--detach", "--", sys.executable, script, "1000")

    assert ended.code == 0
    assert project.name in ended.said[0]
    until(lambda: "step 5/" in project.log())
    assert project.line()["alive"] is True
    assert project.say("stop", project.name).code == 0
    assert project.line()["run"]["outcome"] == "stopped by the user"


def test_detached_what_cannot_begin_is_said(project: Project) -> None:
    project.job("", project.script("print('hello')"))
    (project.folder / "rocsteady.toml").chmod(0o666)

    unknown = project.say("run", "--detach")
    taken = [project.run("--detach") for _ in range(2)][1]
    until(lambda: project.line()["run"]["ended"])

    assert (unknown.code, "nothing was started" in unknown.err) == (2, True)
    assert taken.code == 2
    assert f"a run named {project.name!r} already exists" in taken.err


def training(project: Project) -> set[int]:
    """Give the processes of the script itself: neither ours nor those that look at it."""
    running = project.processes().items()
    return {pid for pid, words in running if "hang_lock" in words and "rocsteady" not in words}


@pytest.mark.slow
def test_observing_tells_a_hang_and_never_acts(project: Project, torch_python: str) -> None:
    victim = str(VICTIMS / "hang_lock_across_fork.py")
    child = project.start("--observe", "--", torch_python, victim)
    told = project.folder / ".rocsteady" / "journal.db"
    until(told.exists)
    until(lambda: any(m["event"] == "hung" for m in project.story()["messages"]), 120)

    assert [m["event"] for m in project.story()["messages"]].count("hung") == 1
    before = training(project)
    assert len(before) == 2  # the script and its loader's worker
    with pytest.raises(Exception, match="timed out"):
        project.ended(child, within=5)
    assert training(project) == before
    child.send_signal(signal.SIGTERM)
    assert child.wait(30) == 143
    assert project.story()["incidents"] == []


@pytest.mark.slow
@pytest.mark.parametrize(("job", "code"), [("", 76), (None, 75)])
def test_an_incident_is_reported_without_names(
    project: Project, torch_python: str, job: str | None, code: int
) -> None:
    shutil.copytree(VICTIMS, project.home / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    victim = str(project.home / "scripts" / "hang_lock_across_fork.py")
    command: tuple[str, ...] = ("--", torch_python, victim)
    if job is None:  # its own job file, so that it can resume
        resumes = '[resume]\narguments = ["{checkpoint}"]\ncheckpoints = ["*.none"]'
        text = f"command = {[torch_python, victim]}\n{resumes}"
        (project.folder / "rocsteady.toml").write_text(text)
        command = ()
    project.environment |= {"USER": "marigold", "LOGNAME": "marigold"}

    ended = project.run("--max-attempts", "1", *command, within=180)
    page = project.say("report", project.name).out
    story = project.story()

    assert ended.code == code
    (incident,) = story["incidents"]
    assert (incident["verdict"], incident["number"]) == ("hung", 1)
    assert incident["place"]
    assert project.name in page
    folder = project.folder / ".rocsteady" / "runs" / project.name / "incident-1"
    assert "look_up" in (folder / "stacks.txt").read_text()
    assert {"stacks.txt", "pages.json", "log-tail.txt"} <= {path.name for path in folder.iterdir()}
    for secret in (str(project.home), "marigold", socket.gethostname()):
        assert secret not in page + json.dumps(story)
    assert {"run", "attempts", "incidents", "decisions", "messages", "intents"} <= set(story)
    assert [intent["kind"] for intent in story["intents"]] == ["start", "kill"]
