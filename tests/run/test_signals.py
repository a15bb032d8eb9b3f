"""Signals and ^C work as without rocsteady, also at prompts and while a script saves."""

from __future__ import annotations

import os
import signal
import sys
import time
from functools import partial

import pytest

if os.name == "nt":
    pytest.skip("real runs are of POSIX; Windows is unconfirmed", allow_module_level=True)

from supervised import ROCSTEADY, Project, Terminal, until

SAVES = """
    import signal, sys, time
    def save(number, frame):
        signal.signal(number, signal.SIG_IGN)  # the save must not be cut short
        print("saving", flush=True)
        time.sleep(float(sys.argv[1]))
        sys.exit(7)
    signal.signal(signal.SIGINT, save)
    signal.signal(signal.SIGTERM, save)
    print("ready", flush=True)
    time.sleep(60)
"""


@pytest.mark.ci
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_script_that_saves_is_not_cut_short(project: Project, number: signal.Signals) -> None:
    child = project.start("--", sys.executable, project.script(SAVES), "7")
    until(lambda: "ready" in project.log(), why=project.log)

    child.send_signal(number)
    until(lambda: "saving" in project.log(), why=project.log)
    if number is signal.SIGINT:
        child.send_signal(number)  # at once, but the script has reacted to the first
    ended = project.ended(child)

    assert ended.code == 7, ended.err
    assert project.line()["run"]["outcome"] == "stopped by the user"


def test_a_request_to_end_goes_to_the_command_alone_at_first(project: Project) -> None:
    script = project.script("""
        import signal, subprocess, sys, time
        worker = subprocess.Popen(["sleep", "60"])
        def heard(number, frame):
            time.sleep(0.5)
            sys.exit(9 if worker.poll() is None else 1)
        signal.signal(signal.SIGTERM, heard)
        print("ready", flush=True)
        time.sleep(60)
    """)
    child = project.start("--", sys.executable, script)
    until(lambda: "ready" in project.log(), why=project.log)

    child.send_signal(signal.SIGTERM)

    assert project.ended(child).code == 9
    assert project.processes() == {}


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT])
def test_what_a_scheduler_sends_to_warn_reaches_the_script(
    project: Project, number: signal.Signals
) -> None:
    script = project.script(f"""
        import signal, time
        signal.signal({int(number)}, lambda *_: print("warned", flush=True))
        print("ready", flush=True)
        for _ in range(15):
            time.sleep(0.1)
    """)
    child = project.start("--", sys.executable, script)
    until(lambda: "ready" in project.log(), why=project.log)

    child.send_signal(number)
    ended = project.ended(child)

    assert "warned" in project.log()
    assert (ended.code, len(ended.lines("done"))) == (0, 1)


@pytest.mark.slow
def test_interrupts_apart_are_the_scripts_alone(project: Project) -> None:
    script = project.script("""
        import signal, time
        signal.signal(signal.SIGINT, lambda *_: print("heard", flush=True))
        print("ready", flush=True)
        until = time.monotonic() + 6
        while time.monotonic() < until:
            time.sleep(0.1)
        raise SystemExit(5)
    """)
    child = project.start("--", sys.executable, script)
    until(lambda: "ready" in project.log(), why=project.log)

    child.send_signal(signal.SIGINT)
    time.sleep(2.3)
    child.send_signal(signal.SIGINT)
    ended = project.ended(child)

    assert (ended.code, project.log().count("heard")) == (5, 2)


ASKS = """
    import sys
    while True:
        try: sys.exit(int(input("code? ")))
        except KeyboardInterrupt: print("no")
"""
DEBUGS = """
    import time
    breakpoint()
    time.sleep(2.5)
    print("went on", flush=True)
"""
AT_PROMPT: dict[str, tuple[str, tuple[str, ...], str, str]] = {
    "pdb": (DEBUGS, (), "(Pdb) ", "c\n"),
    "repl": ("value = 1", ("-i",), ">>> ", "exit(5)\n"),
    "question": (ASKS, (), "code? ", "9\n"),
}


def _shows_more(terminal: Terminal, prompt: str, times: int) -> bool:
    return terminal.text.count(prompt) > times


@pytest.mark.slow
@pytest.mark.parametrize("case", AT_PROMPT)
def test_an_interrupt_at_a_prompt_never_ends_the_run(project: Project, case: str) -> None:
    text, options, prompt, answer = AT_PROMPT[case]
    command = (sys.executable, *options, project.script(text))
    project.environment["TERM"] = "xterm"

    def code(*words: str) -> int:
        terminal = project.on_terminal(*words)
        terminal.wait_for(prompt)
        for _ in range(2):
            shown = terminal.text.count(prompt)
            time.sleep(0.7)  # Python misses a signal just before it begins to read
            terminal.type("\x03")
            until(partial(_shows_more, terminal, prompt, shown), why=lambda: terminal.text)
        time.sleep(1.5)
        terminal.type(answer)
        return terminal.code()

    bare = code(*command)
    watched = code(*ROCSTEADY, "run", "--name", project.name, "--", *command)

    assert watched == bare
    assert project.processes() == {}
    if case == "pdb":
        assert "went on" in project.log()
        assert project.line()["run"]["outcome"] == "done"


def test_the_next_stage_is_not_started_after_an_interrupt(project: Project) -> None:
    script = project.script("""
        import signal, sys, time
        signal.signal(signal.SIGINT, lambda *_: sys.exit(0))
        open("ran", "a").write(f"{sys.argv[1]} ")
        print("ready", flush=True)
        time.sleep(60)
    """)
    stages = """
        name = "two"
        [[stages]]
        name = "first"
        arguments = ["--part", "1"]
        [[stages]]
        name = "second"
        arguments = ["--part", "2"]
    """
    project.job(stages, script)
    child = project.popen("run", "--yes")
    logs = project.folder / ".rocsteady" / "runs"
    until(lambda: any("ready" in log.read_text() for log in logs.glob("*/attempt-1.log")))

    child.send_signal(signal.SIGINT)
    ended = project.ended(child)

    assert ended.code == 0, ended.err
    assert (project.folder / "ran").read_text() == "--part "
    assert "second not started" in ended.err


@pytest.mark.parametrize(
    ("end", "said", "code"),
    [
        ("signal.alarm(1); time.sleep(60)", "SIGALRM", 142),
        ("os.kill(os.getpid(), signal.SIGUSR1)", "SIGUSR1", 138),
        ("os.kill(os.getpid(), 9)", "SIGKILL", 137),
        ("os.abort()", "abort", 134),
        ("sys.exit(142)", "", 142),
    ],
)
def test_a_signal_that_ended_the_script_is_named(
    project: Project, end: str, said: str, code: int
) -> None:
    script = project.script(f"import os, signal, sys, time\n{end}\n")

    ended = project.run("--max-attempts", "1", "--", sys.executable, script)

    assert ended.code == code, ended.err
    assert said in ended.lines("crashed")[0]
    assert ("SIG" in ended.err) == (said != "" and "abort" not in said)
