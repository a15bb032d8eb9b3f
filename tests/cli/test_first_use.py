"""What a first-time user types, and what answers: the next thing to type, and a code that fits."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if os.name == "nt":
    pytest.skip("runs are of POSIX; Windows is unconfirmed", allow_module_level=True)

from supervised import Project

pytestmark = pytest.mark.slow  # real runs, some seconds each

if TYPE_CHECKING:
    from tests.cli.conftest import Rocsteady

PYTHON = "python3"  # the test's own PATH has no python


def below(cli: Rocsteady) -> Rocsteady:
    """Return the command in a folder that is not HOME."""
    folder = cli.folder / "project"
    folder.mkdir()
    inner = type(cli)(folder)
    inner.environment = cli.environment
    return inner


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("run", "train.py"), f"{PYTHON} train.py"),
        (("run", "--", "./train.py", "--lr", "1 0"), f"{PYTHON} ./train.py --lr '1 0'"),
        (("run", "--detach", "train.py"), f"{PYTHON} train.py"),
        (("plan", "--no-trials", "train.py"), f"{PYTHON} train.py"),
        (("init", "train.py"), f"{PYTHON} train.py"),
        (("drill", "--faults", "kill@5", "train.py"), f"{PYTHON} train.py"),
    ],
)
def test_a_script_without_its_interpreter_is_offered_with_one(
    cli: Rocsteady, words: tuple[str, ...], offered: str, tmp_path: Path
) -> None:
    here = below(cli)
    (here.folder / "train.py").write_text("print('never')")
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / PYTHON).symlink_to(f"/usr/bin/{PYTHON}")

    ended = here(*words, env={"PATH": str(programs)})

    assert ended.code == 2
    assert f"is a script, not a program. Did you mean: {offered}\n" in ended.err
    assert [path.name for path in here.folder.iterdir()] == ["train.py"]


def test_a_script_that_is_a_program_runs(project: Project) -> None:
    script = project.folder / project.script("#!/bin/sh\necho ran\n")
    script.chmod(0o755)

    assert project.run("./train.py").out == "ran\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("docter",), "no command named 'docter'. Did you mean 'doctor'?"),
        (("frobnicate",), "no command named 'frobnicate'. To list them: rocsteady --help"),
        (("checkpoint", "lst"), "lst does not exist. Name the folder"),
        (("status", "--jsn"), "--json"),
        (
            ("run", "--allow", "loader-inlin", "--", "true"),
            "no workaround named 'loader-inlin'. Did you mean 'loader-inline'?",
        ),
        (
            ("explain", "loader-inlin"),
            "no failure, workaround or rule named 'loader-inlin'. Did you mean 'loader-inline'?",
        ),
        (("run", "--allow", "xyzzy", "--", "true"), "for a failure: rocsteady explain FAILURE"),
        (("explain", "q-q-q"), 'ID of a failure: rocsteady explain "ERROR'),
        (("explain", "caching-of"), "Did you mean"),
        (("probe", "matmul-gradien"), "no probe named 'matmul-gradien'. Did you mean 'matmul-gra"),
    ],
)
def test_an_unknown_name_is_answered_with_the_closest(
    cli: Rocsteady, words: tuple[str, ...], says: str
) -> None:
    ended = cli(*words)

    assert ended.code == 2
    assert says in ended.err


def test_an_unknown_run_is_answered_with_the_closest_and_the_last_is_reported(
    project: Project,
) -> None:
    near, name, other = project.name[:-1], project.name, f"last-{project.name}"
    first = project.run("true", name=name)
    second = project.run("true", name=other)
    wrong = [
        project.say(*words)
        for words in (("report", near), ("stop", near), ("run", "--resume", near))
    ]
    nowhere_near = project.say("stop", "zzz")
    taken = project.run("true", name=name)
    last = project.say("report")
    last_json = project.say("report", "--json")

    assert (first.code, second.code) == (0, 0)
    for ended in wrong:
        assert ended.code == 2
        assert f"no run named {near!r}. Did you mean {name!r}?" in ended.err
    assert "no run named 'zzz'. To list them: rocsteady status" in nowhere_near.err
    assert (taken.code, f"rocsteady run --resume {name}" in taken.err) == (2, True)
    assert (last.code, f"# {other}: " in last.out) == (0, True)
    assert f'"name": "{other}"' in last_json.out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("run",), "name a command"),
        (("run", "--name", "../x", "--", "true"), "is not a name"),
        (("run", "--resume", "calm-otter"), "no run named 'calm-otter'"),
        (("run", "--plan", "3", "--", "true"), "no plan for this folder yet"),
        (("report",), "no runs"),
        (("checkpoint", "nowhere"), "nowhere does not exist"),
    ],
)
def test_incorrect_usage_is_always_2(cli: Rocsteady, words: tuple[str, ...], says: str) -> None:
    ended = cli(*words)

    assert (ended.code, says in ended.err) == (2, True), ended.err
    assert not (cli.folder / ".rocsteady").exists()


@pytest.mark.parametrize("words", [("run",), ("plan",), ("drill", "--faults", "kill@5")])
def test_a_mistake_in_the_job_file_is_incorrect_usage(
    cli: Rocsteady, words: tuple[str, ...]
) -> None:
    here = below(cli)
    (here.folder / "rocsteady.toml").write_text('command = ["true"]\ndeadline = "soon"\n')

    ended = here(*words)

    assert (ended.code, "deadline" in ended.err) == (2, True), ended.err


@pytest.mark.parametrize("name", ["nofile.log", "logs/nofile", "/var/log/my run/no file.txt"])
def test_a_file_that_does_not_exist_is_not_explained_as_text(cli: Rocsteady, name: str) -> None:
    ended = cli("explain", name)

    assert (ended.code, ended.out) == (2, "")
    assert f"file {name!r} does not exist." in ended.err


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB", 0),
        ("Something went wrong in train.py.", 1),
        ("What is this?", 1),
    ],
)
def test_a_message_is_still_text(cli: Rocsteady, text: str, code: int) -> None:
    assert cli("explain", text).code == code


def test_reading_makes_nothing_where_the_journal_is_elsewhere(cli: Rocsteady) -> None:
    """The project was read-only when it ran, so that its journal is in the state folder."""
    inner = below(cli)
    project = inner.folder
    (project / ".rocsteady").write_text("in the way")
    ran = inner("run", "--", "true")
    (project / ".rocsteady").unlink()

    listed = inner("status")

    assert ran.code == 0, ran.err
    assert "done" in listed.out
    assert list(project.iterdir()) == []


def test_the_project_is_found_from_its_subfolders(project: Project) -> None:
    name, other = project.name, f"typed-{project.name}"
    project.job(f'name = "{name}"', project.script("import os; print(os.getcwd())"))
    deep = project.folder / "src" / "models"
    deep.mkdir(parents=True)
    top = project.folder

    project.folder = deep
    ran = project.say("run", "--yes")
    typed = project.run("pwd", name=other)
    listed = project.say("status")
    shutil.rmtree(deep / ".rocsteady")
    from_below = [project.say(*words) for words in (("status",), ("report",), ("report", "--json"))]
    resumed = project.say("run", "--resume", name)
    project.folder = top

    assert (ran.code, ran.out) == (0, f"{top}\n"), ran.err
    assert f"project folder: {top}" in ran.said
    assert typed.out == f"{deep}\n"  # what is typed runs where it is typed
    assert listed.out.count(name) == listed.out.count(other) == 1
    for said in from_below:
        assert (said.code, name in said.out) == (0, True)
    assert "is done" in resumed.err
    assert list(deep.iterdir()) == []


def test_a_folder_that_anybody_may_write_to_is_nobodys_project(project: Project) -> None:
    project.job("", project.script("print('never')"))
    project.folder.chmod(0o777)
    mine = project.folder / "mine"
    mine.mkdir()
    project.folder = mine

    ended = project.say("run", "--yes")

    assert (ended.code, "name a command" in ended.err) == (2, True)


@pytest.mark.parametrize(
    "command",
    [("python3", "-c", "raise KeyError('x')"), ("sh", "-c", "exit 3"), ("no-such-program",)],
)
def test_a_failure_of_the_command_is_one_line_behind_its_own(
    project: Project, command: tuple[str, ...]
) -> None:
    ended = project.run("--", *command)

    assert ended.code != 0
    started = [line for line in ended.said if line.startswith(("started", " "))]
    assert len(ended.said) == len(started) + 1


def test_what_was_not_tried_is_in_the_report_only(project: Project) -> None:
    told = "RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error."
    denied_name = f"{project.name}-denied"
    ended = project.run("--max-attempts", "1", "sh", "-c", f"echo '{told}' >&2; exit 1")
    denied = project.run(
        "--deny",
        "retry,loader-inline,cpu,fresh-process",
        "sh",
        "-c",
        f"echo '{told}' >&2; exit 1",
        name=denied_name,
    )
    report = project.say("report", denied_name).out

    for each in (ended, denied):
        assert "not tried" not in each.err
    assert report.count("not tried: ") > 1


@pytest.mark.ci
def test_an_interrupted_run_says_how_to_resume(project: Project) -> None:
    project.script("import time; print('up', flush=True); time.sleep(60)")
    terminal = project.on_terminal(
        *project.program, "run", "--name", project.name, "--", "python3", "train.py"
    )
    terminal.wait_for("up")

    terminal.type("\x03")

    assert terminal.code() == 130
    last = terminal.text.splitlines()[-1]
    assert last.endswith("rocsteady run --resume never -- python3 train.py")  # it saves nothing


@pytest.mark.ci
def test_the_output_of_a_detached_run_can_be_followed(project: Project) -> None:
    project.script(
        """
        import time
        for number in range(30):
            print("line", number, flush=True)
            time.sleep(0.1)
        """
    )
    detached = project.run("--detach", "python3", "train.py")
    followed = project.say("logs", "-f", project.name)
    last = project.say("logs", "-n", "2")
    whole = project.say("logs")

    assert f"rocsteady logs -f {project.name}" in detached.err
    assert (followed.code, whole.code) == (0, 0)
    words = [line.partition(" ")[2] for line in followed.out.splitlines()]
    assert words == [f"line {number}" for number in range(30)]
    assert whole.out == followed.out
    assert last.out.splitlines() == followed.out.splitlines()[-2:]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_works_as_the_reference_says(cli: Rocsteady, shell: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "commands.md").read_text()
    assert f"_ROCSTEADY_COMPLETE={shell}_source rocsteady" in page

    source = cli(env={"_ROCSTEADY_COMPLETE": f"{shell}_source"})
    typed = {"COMP_WORDS": "rocsteady r", "COMP_CWORD": "r" if shell == "fish" else "1"}
    completed = cli(env={"_ROCSTEADY_COMPLETE": f"{shell}_complete", **typed})

    assert (source.code, f"_ROCSTEADY_COMPLETE={shell}_complete" in source.out) == (0, True)
    assert all(word in completed.out for word in ("run", "report"))
    assert "doctor" not in completed.out


def test_init_shows_progress_finds_earlier_checkpoints_and_speaks_on_an_interrupt(
    project: Project,
) -> None:
    project.script("import time\nfor step in range(400): print(step, flush=True); time.sleep(0.1)")
    (project.folder / "ckpt").mkdir()
    (project.folder / "ckpt" / "step_100.pt").touch()
    command = (*project.program, "init", "--yes", "--seconds", "2", "--", "python3", "train.py")
    interrupted = project.on_terminal(*command)
    interrupted.wait_for("waiting for the first step")
    interrupted.type("\x03")

    assert interrupted.code() == 130
    assert "interrupted. rocsteady.toml was not written" in interrupted.text
    assert not (project.folder / "rocsteady.toml").exists()
    ended = project.on_terminal(*command)
    assert ended.code() == 0, ended.text
    assert "waiting for the first step" in ended.text
    assert 'ckpt/step_*.pt"' in (project.folder / "rocsteady.toml").read_text()
