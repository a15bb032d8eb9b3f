"""A run folder and a journal give no orders: nothing in them is executed or set unseen."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import sys
import zipfile
from pathlib import Path

import pytest
from supervised import Ended, Project, until

from rocsteady.store.database import column

pytestmark = pytest.mark.skipif(os.name == "nt", reason="runs are of POSIX")

SCRIPT = """
    import os, sys
    print("PLANTED:", os.environ.get("PLANTED"), os.environ.get("LD_PRELOAD"), sys.argv[1:])
    print("SDMA:", os.environ.get("HSA_ENABLE_SDMA"))
    sys.exit(0 if os.path.exists("finish") else 1)
"""
NOTHING = "PLANTED: None None []"
PLANTED = {"PLANTED": "1", "LD_PRELOAD": "./planted.so"}


@pytest.fixture
def left(project: Project) -> Project:
    """Return a project with a run that failed, and whose script would now succeed."""
    project.script(SCRIPT)
    failed = project.run("--max-attempts", "1", "--", sys.executable, "train.py")
    assert failed.code == 1, failed.err
    (project.folder / "finish").write_text("x" * 100)
    return project


def resumed(project: Project, *words: str) -> Ended:
    """Resume the run without a terminal: whoever is asked has not answered."""
    return project.say("run", "--resume", project.name, *words)


def records(project: Project) -> Path:
    return project.folder / ".rocsteady" / "runs" / project.name


def change_journal(project: Project, statement: str, value: object) -> None:
    with sqlite3.connect(project.folder / ".rocsteady" / "journal.db") as journal:
        assert journal.execute(statement, (column(value),)).rowcount


def by_somebody_else(project: Project) -> None:
    """Have the account know nothing of the run."""
    shutil.rmtree(project.home / ".local")


def test_a_way_to_resume_in_the_folder_of_a_run_is_not_used(left: Project) -> None:
    planted = {"arguments": ["--planted"], "environment": PLANTED, "checkpoints": ["finish"]}
    (records(left) / "resumes.json").write_text(json.dumps(planted))
    (records(left) / "options.json").write_text(
        json.dumps({"fallbacks": [{"number": 1, "title": "", "strategy": {"variables": PLANTED}}]})
    )

    ended = resumed(left)

    assert (ended.code, ended.out.splitlines()[0]) == (0, NOTHING), ended.err


COLUMNS = {"attempts": "strategy", "decisions": "decision"}


def change_settings(project: Project, table: str, **settings: object) -> None:
    """Change what a journal says that an attempt was started with, or is to be."""
    decision = {"next": "again", "why": "", "strategy": settings}
    value = settings if table == "attempts" else decision
    change_journal(project, f"UPDATE {table} SET {COLUMNS[table]} = ?", value)  # noqa: S608 - ours


@pytest.mark.parametrize("name", ["PLANTED", "LD_PRELOAD", "PYTHONPATH", "PATH"])
@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("table", COLUMNS)
def test_a_variable_that_no_workaround_sets_is_not_taken_from_a_journal(
    left: Project, table: str, name: str, *, own: bool
) -> None:
    change_settings(left, table, variables={name: ".", "HSA_ENABLE_SDMA": "0"})
    if not own:
        by_somebody_else(left)

    refused = resumed(left, "--yes")

    assert (refused.code, f"sets {name}," in refused.err, refused.out) == (76, True, "")


@pytest.mark.parametrize("table", COLUMNS)
def test_settings_that_this_account_did_not_choose_are_asked_about_once(
    left: Project, table: str
) -> None:
    change_settings(left, table, variables={"HSA_ENABLE_SDMA": "0"}, device="cpu")

    asked = resumed(left)
    ended = resumed(left, "--yes")
    (left.folder / "finish").unlink()
    again = resumed(left)

    assert (asked.code, asked.out) == (76, "")
    assert "settings: device=cpu, HSA_ENABLE_SDMA=0" in asked.err
    assert (ended.code, ended.out.splitlines()) == (0, [NOTHING, "SDMA: 0"]), ended.err
    assert (again.code, "is done" in again.err) == (0, True)


@pytest.mark.parametrize("name", ["LD_PRELOAD", "PYTHONPATH", "PATH"])
def test_a_journal_from_elsewhere_sets_no_variable_that_loads_code(
    left: Project, name: str
) -> None:
    resume = {"environment": {name: "."}, "checkpoints": ["finish"]}
    job = {"command": [sys.executable, "train.py"], "resume": resume}
    change_journal(left, "UPDATE runs SET job = ?", job)
    by_somebody_else(left)

    refused = resumed(left, "--yes")

    assert (refused.code, name in refused.err) == (76, True)
    assert "PLANTED" not in refused.out


def test_what_a_run_from_elsewhere_would_start_and_set_is_shown_whole(left: Project) -> None:
    change_settings(left, "attempts", variables={"HSA_ENABLE_SDMA": "0"}, device="cpu")
    resume = {"arguments": ["--from", "{checkpoint}"], "environment": {"FROM": "{checkpoint}"},
              "checkpoints": ["fin*"]}  # fmt: skip
    job = {"command": [sys.executable, "train.py"], "resume": resume}
    change_journal(left, "UPDATE runs SET job = ?", job)
    by_somebody_else(left)

    asked = resumed(left)
    ended = resumed(left, "--yes")
    known = left.say("report", left.name)

    assert (asked.code, asked.out) == (76, "")
    for shown in (
        f"command: {sys.executable} train.py\n",
        '"arguments": [\n      "--from",\n      "{checkpoint}"\n    ]',
        '"FROM": "{checkpoint}"',
        "settings: device=cpu, HSA_ENABLE_SDMA=0\n",
        "checkpoint: finish\n",
    ):
        assert shown in asked.err
    planted = f"PLANTED: None None ['--from', '{left.folder / 'finish'}']"
    assert ended.out.splitlines() == [planted, "SDMA: 0"]
    assert (ended.code, known.code) == (0, 0), ended.err


def write_saved(path: Path) -> None:
    """Write a file with an optimizer in it, as torch.save does."""
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as archive:
        keys = b"X\x05\x00\x00\x00modelX\x0c\x00\x00\x00param_groups."
        archive.writestr("archive/data.pkl", b"\x80\x02}q\x00(" + keys)
        archive.writestr("archive/data/0", b"\0" * 64)


def test_which_checkpoint_a_script_from_elsewhere_would_read_is_shown(left: Project) -> None:
    left.script("""
        import argparse, os, sys
        parser = argparse.ArgumentParser()
        parser.add_argument("--resume")
        given = parser.parse_args()
        if given.resume and not os.path.exists("finish"):
            state = torch.load(given.resume)
            model.load_state_dict(state["model"]); optimizer.load_state_dict(state["optimizer"])
            step = state["step"]
        print("began with", *sys.argv[1:])
    """)
    write_saved(left.folder / "checkpoints" / "planted.pt")
    by_somebody_else(left)

    asked = resumed(left)
    ended = resumed(left, "--yes")

    assert (asked.code, asked.out) == (76, "")
    assert "resume: resumes with --resume CHECKPOINT (found in train.py:" in asked.err
    assert "\ncheckpoint: checkpoints/planted.pt\n" in asked.err
    planted = left.folder / "checkpoints/planted.pt"
    assert ended.out == f"began with --resume {planted}\n", ended.err


def test_no_value_looks_like_another_line_of_what_is_asked_about(left: Project) -> None:
    forged = "x\n- resume.environment: LD_PRELOAD=./planted.so"
    left.job(f"""
        [resume]
        checkpoints = ["*.txt"]
        arguments = [{json.dumps(forged)}]
        environment = {{ FROM = {json.dumps(forged)} }}
        [notify]
        command = ["./told.sh", {json.dumps(forged)}]
    """, "train.py")  # fmt: skip

    asked = left.say("run")
    shown = [line for line in asked.err.splitlines() if line.startswith(("+ ", "- "))]

    assert asked.code == 2
    assert [line.split(":")[0] for line in shown] == [
        "+ command", "+ resume.arguments", "+ resume.environment", "+ resume.checkpoints",
        "+ notify.command",
    ]  # fmt: skip


def test_how_a_script_from_elsewhere_resumes_is_shown(left: Project) -> None:
    left.script("""
        import os, sys, torch
        if os.path.exists("last.pt"):
            state = torch.load("last.pt")
            model.load_state_dict(state["model"]); optimizer.load_state_dict(state["optimizer"])
            step = state["step"]
        sys.exit(print("ran"))
    """)
    by_somebody_else(left)

    asked = resumed(left)

    assert (asked.code, asked.out) == (76, "")
    assert "resume: resumes by itself (found in train.py:" in asked.err


def test_which_checkpoints_are_its_own_is_not_read_from_the_folder_of_a_run(
    project: Project,
) -> None:
    project.job("[resume]\narguments = ['{checkpoint}']\ncheckpoints = ['*.txt']\n",
                project.script(SCRIPT))  # fmt: skip
    (project.folder / "own.txt").write_text("x" * 100)
    project.run("--max-attempts", "1", "--resume", "never")
    (project.folder / "finish").touch()
    planted = {"before": [], "foreign": [], "runs": 0}
    (records(project) / "checkpoints-before.json").write_text(json.dumps(planted))
    for path in records(project).iterdir():
        if path.suffix == ".json":
            path.write_text(json.dumps(planted))

    ended = resumed(project)

    assert (ended.code, ended.out.splitlines()[0]) == (0, NOTHING), ended.err


@pytest.mark.parametrize("how", ["typed", "detached", "killed", "job file", "slurm"])
def test_a_run_that_nobody_changed_is_resumed_without_a_question(
    project: Project, how: str
) -> None:
    script = project.script("""
        import os, sys, time
        open("began", "a").close()
        while not os.path.exists("finish"):
            time.sleep(0.05)
    """)
    command = [] if how == "job file" else ["--", sys.executable, script]
    if how == "job file":
        project.job("", script)
    if how == "slurm":
        names = ("SLURM_JOB_ID", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID")
        project.environment |= dict.fromkeys(names, "0")
        project.environment |= {"SLURM_NTASKS": "1", "SLURM_NNODES": "1", "SLURM_JOB_ID": "7"}
    if how == "detached":
        assert project.run("--detach", *command).code == 0
        supervisor = int(project.line()["run"]["process"].split(":")[1])
    else:
        supervisor = project.start(*command).pid
    until((project.folder / "began").exists)
    if how == "killed":
        os.kill(supervisor, signal.SIGKILL)
    else:
        project.say("stop", project.name)
    until(lambda: project.line()["alive"] is not True)
    (project.folder / "finish").touch()

    ended = resumed(project, *(["--detach"] if how == "detached" else []))
    until(lambda: project.line()["run"]["ended"])

    assert (ended.code, "no record" in ended.err) == (0, False), ended.err
    assert project.line()["run"]["outcome"] == "done"


@pytest.mark.parametrize("own", [True, False])
def test_copies_that_came_with_a_run_are_put_nowhere(left: Project, *, own: bool) -> None:
    precious = left.home / "precious"
    precious.mkdir()
    (precious / "keys").write_text("mine")
    (left.folder / "out").symlink_to(precious)
    planted = records(left) / "before-resume" / "out"
    planted.mkdir(parents=True)
    (planted / "keys").write_text("somebody's")
    if not own:
        by_somebody_else(left)

    ended = resumed(left, *(() if own else ("--yes",)))

    assert ended.code == 0, ended.err
    assert (precious / "keys").read_text() == "mine"


@pytest.mark.parametrize("which", ["runs", "run", "incident"])
def test_a_link_in_place_of_a_folder_is_not_read(left: Project, which: str) -> None:
    own, secret = records(left), "what another project printed"
    elsewhere = left.home / "elsewhere"
    place = {"runs": own.parent, "run": own, "incident": own / "incident-1"}[which]
    (elsewhere / own.name if which == "runs" else elsewhere).mkdir(parents=True)
    for name in ("attempt-1.log", f"{own.name}/attempt-1.log", "stacks.txt"):
        if (elsewhere / name).parent.is_dir():
            (elsewhere / name).write_text(f"2026-11-18T00:00:00.000Z {secret}\n")
    if place.exists():
        shutil.rmtree(place)
    place.symlink_to(elsewhere)

    for words in (
        ("logs", own.name),
        ("report", "-o", "x.html"),
        ("report", "--bundle", "-o", "x.zip"),
    ):
        told = left.say(*words)
        assert (told.code, "is a link" in told.err, secret in told.out) == (1, True, False), told
    assert not list(left.folder.glob("x.*"))


@pytest.mark.parametrize("content", [b"", b"a text\n", bytes(8192), None])
def test_a_journal_that_is_lost_is_said_to_be(left: Project, content: bytes | None) -> None:
    journal = left.folder / ".rocsteady" / "journal.db"
    content = journal.read_bytes()[:6000] if content is None else content
    for part in journal.parent.glob("journal.db-*"):
        part.unlink()
    journal.write_bytes(content)
    earlier = left.name

    told = left.say("status")
    ended = left.run("--", sys.executable, "-c", "pass", name="next")
    listed = left.say("status")

    why = "damaged, and is now" if content else "empty"
    aside = [path.read_bytes() for path in journal.parent.glob("journal.db.broken-1")]
    assert (told.code, "the journal is damaged" in told.err) == (1, True)
    assert (ended.code, f"the journal was {why}" in ended.err) == (0, True), ended.err
    assert ("next" in listed.out, earlier in listed.out) == (True, False)
    assert aside == ([content] if content else [])
    assert (journal.parent / "runs" / earlier / "attempt-1.log").exists()


SWAPS = """
    import os, signal, sys
    name, loot, kind = sys.argv[1:]
    os.rename(".rocsteady", ".gone")
    os.makedirs(".rocsteady/runs")
    if kind == "runs":
        os.rmdir(".rocsteady/runs")
        os.symlink(loot, ".rocsteady/runs")
    elif kind == "run":
        os.symlink(os.path.join(loot, name), f".rocsteady/runs/{name}")
    else:
        os.mkdir(f".rocsteady/runs/{name}")
        os.symlink(loot, f".rocsteady/runs/{name}/{kind}")
        os.chown(f".rocsteady/runs/{name}", 65534, 65534)
    os.chown(".rocsteady", 65534, 65534)
    print("step 1", flush=True)
    os.kill(os.getpid(), signal.SIGSEGV)
"""


@pytest.mark.skipif(os.name == "nt" or os.geteuid() != 0, reason="takes root")
@pytest.mark.parametrize("kind", ["runs", "run", "evidence-1", "aside-1"])
def test_nothing_is_written_where_somebody_put_another_folder(project: Project, kind: str) -> None:
    """In a project that others can write to, the folder of a run can be exchanged while it runs."""
    loot = project.home / "loot"
    (loot / project.name).mkdir(parents=True)
    kept = ("attempt-2.log", "memory.json", "stacks.txt", "train.py", "resumed")
    for folder in (loot, loot / project.name):
        for name in kept:
            (folder / name).write_text("mine")
    project.script(SWAPS)

    words = (sys.executable, "train.py", project.name, str(loot), kind)
    ended = project.run("--resume", "never", "--", *words)

    assert ended.code == 76, ended.err
    assert "; it was not so when the run began" in ended.err
    assert "disk space" not in ended.err
    assert sorted(each.name for each in loot.iterdir()) == sorted((*kept, project.name))
    for folder in (loot, loot / project.name):
        assert {(folder / name).read_text() for name in kept} == {"mine"}
