"""^C, ^Z, a request to end, a lost terminal: as without rocsteady, and no attempt follows."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from supervised import ROCSTEADY, Project, is_stopped, until

VICTIMS = Path(__file__).parent.parent / "victims"
STEPS = """
    import signal, sys, time
    code = int(sys.argv[1]) if sys.argv[1:] else None
    def heard(number, frame):
        print("heard", number, flush=True)
        if code is not None:
            sys.exit(code)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, heard)
    for step in range(1, 1001):
        print(f"step {step}/1000", flush=True)
        time.sleep(0.05)
"""
FAMILY = """
    import subprocess, sys, time
    for _ in range(5):
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"],
                         start_new_session=True)
    exec(open("train.py").read())
"""
RESUMES = """
    [resume]
    arguments = ["{checkpoint}"]
    checkpoints = ["*.none"]
"""  # without it, a script that ended with an error would not be started again anyway
CODES = ("0", "5", "7", "9")


def started(project: Project, *words: str) -> subprocess.Popen[bytes]:
    """Start a script that can be started again, and wait for its first steps."""
    script = project.script(STEPS)
    project.job(RESUMES, script, *words)
    child = project.start()
    until(lambda: "step 3/" in project.log(), why=project.log)
    return child


def heard(project: Project) -> int:
    return project.log().count("heard")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("code", CODES)
def test_a_signal_reaches_the_script_once_its_code_is_ours_and_nothing_follows(
    project: Project, code: str, number: signal.Signals
) -> None:
    child = started(project, code)

    os.killpg(child.pid, number)
    ended = project.ended(child)

    assert ended.code == int(code)
    assert heard(project) == 1
    assert len(project.story()["attempts"]) == 1
    assert project.line()["run"]["outcome"] == "stopped by the user"
    assert len(ended.lines("stopped")) == 1


@pytest.mark.parametrize("code", CODES[:2])
def test_the_interrupt_key_reaches_the_script_once_and_nothing_follows(
    project: Project, code: str
) -> None:
    project.job(RESUMES, project.script(STEPS), code)
    terminal = project.on_terminal(*ROCSTEADY, "run", "--yes", "--name", project.name)
    terminal.wait_for("step 3/")

    terminal.type("\x03")

    assert terminal.code() == int(code)
    assert heard(project) == 1
    assert len(project.story()["attempts"]) == 1


@pytest.mark.slow
def test_a_second_interrupt_that_is_ignored_too_ends_the_tree(project: Project) -> None:
    project.script(STEPS)
    child = project.start("--", sys.executable, project.script(FAMILY, "family.py"))
    until(lambda: "step 3/" in project.log(), why=project.log)
    assert len(project.processes()) == 8  # supervisor, keeper, script and five more

    os.killpg(child.pid, signal.SIGINT)
    until(lambda: heard(project) == 1)
    again = time.monotonic()
    os.killpg(child.pid, signal.SIGINT)
    ended = project.ended(child)

    assert ended.code == 130
    assert time.monotonic() - again < 10  # 1 s to act on it, 5 s after SIGTERM, and the kill
    assert heard(project) == 3  # two interrupts and the request to end
    assert "the script ignored two interrupts; terminating it." in ended.err
    assert project.processes() == {}


@pytest.mark.slow
def test_a_third_interrupt_key_ends_the_tree_at_once(project: Project) -> None:
    project.script(STEPS)
    command = ("run", "--name", project.name, "--", sys.executable)
    terminal = project.on_terminal(*ROCSTEADY, *command, project.script(FAMILY, "family.py"))
    terminal.wait_for("step 3/")

    terminal.type("\x03")
    terminal.wait_for("heard")
    terminal.type("\x03")
    terminal.wait_for("terminating it")
    again = time.monotonic()
    terminal.type("\x03")

    assert terminal.code() == 130
    assert time.monotonic() - again < 4  # of the 5 s after SIGTERM, and the kill
    assert heard(project) >= 3
    assert project.processes() == {}


def test_an_interrupt_shortens_a_request_to_end_that_is_not_heard(project: Project) -> None:
    child = started(project)

    child.send_signal(signal.SIGTERM)
    until(lambda: heard(project) == 1)
    again = time.monotonic()
    child.send_signal(signal.SIGINT)
    ended = project.ended(child)

    assert ended.code == 130
    assert time.monotonic() - again < 3  # of the 30 s that it is given otherwise


@pytest.mark.ci
@pytest.mark.slow
@pytest.mark.parametrize(("arguments", "most", "code"), [((), 9.0, 143), (("3",), 3.0, 3)])
def test_a_request_to_end_ends_the_tree(
    project: Project, arguments: tuple[str, ...], most: float, code: int
) -> None:
    project.program = (sys.executable, str(VICTIMS / "hurried.py"))  # 6 s to save
    project.script(STEPS)
    family = project.script(FAMILY, "family.py")
    child = project.start("--", sys.executable, family, *arguments)
    until(lambda: "step 3/" in project.log(), why=project.log)

    asked = time.monotonic()
    child.send_signal(signal.SIGTERM)
    ended = project.ended(child)

    assert ended.code == code
    assert time.monotonic() - asked < most
    assert len(project.story()["attempts"]) == 1
    assert project.processes() == {}


def test_stop_ends_a_run_from_elsewhere(project: Project) -> None:
    child = started(project, "0")

    stopped = project.say("stop", project.name)

    assert (stopped.code, stopped.said) == (0, [f"{project.name} has ended."])
    assert project.ended(child, within=1).code == 0
    assert project.line()["run"]["outcome"] == "stopped by the user"
    again = project.say("stop", project.name)
    assert again.code == 1
    assert f"--resume {project.name}" in again.said[0]


def test_stop_signals_the_very_process_and_no_other_with_its_number(project: Project) -> None:
    child = started(project, "0")
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    journal = sqlite3.connect(project.folder / ".rocsteady" / "journal.db")
    try:
        (process,) = journal.execute("SELECT process FROM runs").fetchone()
        space, number, birth = process.split(":")
        assert int(number) == child.pid
        with journal:
            journal.execute("UPDATE runs SET process = ?", (f"{space}:{other.pid}:{birth}",))
        stopped = project.say("stop", project.name)
        assert (stopped.code, other.poll()) == (1, None)
        assert "not running" in stopped.said[0]
    finally:
        journal.close()
        other.kill()
        other.wait()
    child.send_signal(signal.SIGTERM)
    assert project.ended(child).code == 0


@pytest.mark.parametrize("command", ["stop", "report"])
def test_a_run_that_is_not_there_is_one_line(project: Project, command: str) -> None:
    told = project.say(command, "calm-otter")

    assert (told.code, told.out) == (2, "")
    assert "'calm-otter'" in told.err.splitlines()[-1]


def test_a_lost_terminal_ends_nothing_and_the_log_is_complete(project: Project) -> None:
    script = project.script("""
        import time
        for step in range(1, 61):
            print(f"step {step}/60", flush=True)
            time.sleep(0.05)
        print("DONE")
    """)
    terminal = project.on_terminal(
        *ROCSTEADY, "run", "--name", project.name, "--", sys.executable, script
    )
    terminal.wait_for("step 5/")

    terminal.hang_up()

    assert terminal.code() == 0
    assert project.log().splitlines() == [*(f"step {n}/60" for n in range(1, 61)), "DONE"]
    assert project.line()["run"]["outcome"] == "done"


def test_the_suspend_key_stops_the_tree_and_fg_continues_it(project: Project) -> None:
    script = project.script(STEPS)
    shell = project.on_terminal("bash", "--norc", "-i")
    command = [*ROCSTEADY, "run", "--name", project.name, "--", sys.executable, script, "7"]
    shell.type(f"{' '.join(command)}\n")
    shell.wait_for("step 5/")

    shell.type("\x1a")
    shell.wait_for("Stopped")
    (pid,) = [
        pid
        for pid, words in project.processes().items()
        if words.strip().endswith("train.py 7") and "rocsteady" not in words
    ]
    assert is_stopped(pid)
    steps = project.log()
    time.sleep(0.5)
    assert project.log() == steps
    shell.type("fg\n")
    until(lambda: project.log() != steps)
    shell.type("\x03")
    shell.wait_for("stopped")
    until(lambda: len(project.processes()) == 1)  # the shell
    shell.type("echo CODE=$?=\n")
    shell.wait_for("CODE=7=")
    shell.type("exit\n")

    assert shell.code() == 0
    assert heard(project) == 1


def test_a_stop_signal_without_a_terminal_stops_the_script_too(project: Project) -> None:
    script = project.script(STEPS)
    shell = project.on_terminal("bash", "--norc", "-i")
    words = " ".join([*ROCSTEADY, "run", "--name", project.name, "--", sys.executable, script, "7"])
    shell.type(f"{words} </dev/null >out 2>err\n")
    until(lambda: "step 5/" in project.log(), why=lambda: shell.text)

    shell.type("\x1a")  # the terminal itself makes a signal of it
    shell.wait_for("Stopped")
    steps = project.log()
    time.sleep(0.5)
    assert project.log() == steps
    shell.type("fg\n")
    until(lambda: project.log() != steps)
    shell.type("\x03")
    until(lambda: len(project.processes()) == 1)  # the shell
    shell.type("echo CODE=$?=\n")
    shell.wait_for("CODE=7=")
    shell.type("exit\n")

    assert shell.code() == 0
    assert heard(project) == 1
