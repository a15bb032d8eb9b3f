"""A restart never costs what the user has; a supervisor that was killed is taken over."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import sys
import time
from pathlib import Path

import pytest
from cases import HERE as VICTIMS
from supervised import Project, until

pytestmark = pytest.mark.slow  # real runs, some seconds each

# Each start ends a step before the last: the same failure at the same step is not tried again.
CRASHES = """
    import os, sys, time
    starts = os.open("starts", os.O_RDWR | os.O_CREAT | os.O_APPEND)
    for step in range(1, 11 - os.write(starts, b"x") * os.fstat(starts).st_size):
        print(f"step {step}/10", flush=True)
        time.sleep(0.01)
    sys.exit(3)
"""
RESUMES = """
    [resume]
    arguments = ["--resume", "{checkpoint}"]
    checkpoints = ["checkpoints/*.pt"]
"""
GOES_ON = """
    import pathlib, sys, time, zipfile
    folder = pathlib.Path("checkpoints")
    folder.mkdir(exist_ok=True)
    first = int(zipfile.ZipFile(sys.argv[2]).read("step")) if sys.argv[1:] else 0
    print("from", first, sys.argv[1:], flush=True)
    for step in range(first + 1, first + 4):
        print(f"step {step}/6", flush=True)
        part = folder / "part"
        with zipfile.ZipFile(part, "w") as archive:
            archive.writestr("step", str(step))
        part.rename(folder / f"step-{step}.pt")
        time.sleep(0.05)
    if first == 0:
        whole = (folder / "step-3.pt").read_bytes()
        (folder / "step-3.pt").write_bytes(whole[:-7])
        sys.exit(3)
    print("DONE")
"""
LASTS = """
    import pathlib, subprocess, sys, time
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    step = 0
    while not pathlib.Path("finish").exists():
        step += 1
        print(f"step {step}/9999", flush=True)
        time.sleep(0.02)
    other.kill()
"""
KILLS = 20


@pytest.mark.ci
def test_a_crash_is_resumed_from_the_newest_checkpoint_that_is_whole(project: Project) -> None:
    project.job(RESUMES, project.script(GOES_ON))

    ended = project.run()

    assert ended.code == 0
    assert "DONE" in ended.out
    assert "from 0 []" in project.log(1)
    told = project.folder / "checkpoints/step-2.pt"
    assert f"from 2 ['--resume', '{told}']" in project.log(2)
    said = "\n".join(ended.said)
    assert "skipped: checkpoints/step-3.pt is cut short or damaged" in said
    assert len(ended.lines("resumed")) == 1
    assert [a["exit_code"] for a in project.story()["attempts"]] == [3, 0]


BY_ITSELF = """
    import pathlib, sys, time
    saved = pathlib.Path("last.pt")
    first = int(saved.read_text()) if saved.exists() and sys.argv[1:] != ["--resume=no"] else 0
    print("from", first, flush=True)
    for step in range(first + 1, first + 5):
        print(f"step {step}/12", flush=True)
        if step % 3 == 0:
            saved.write_text(str(step))
        time.sleep(0.05)
    if first < 6:
        import os, signal
        os.kill(os.getpid(), signal.SIGKILL)
    print("DONE")
"""


def test_a_script_that_resumes_on_its_own_is_restarted_without_a_job_file(
    project: Project,
) -> None:
    script = project.script(BY_ITSELF)

    ended = project.run("--", sys.executable, script, "--resume=latest")

    said = "\n".join(ended.said)
    assert "resumes with --resume=latest" in said
    assert ended.lines("retrying")
    assert ended.code == 0
    assert "from 3" in project.log(2)
    assert "from 6" in project.log(3)
    assert "DONE" in ended.out
    assert not list(project.folder.glob(".rocsteady/runs/*/aside-*")), "nothing is at risk"


def test_a_script_that_is_not_known_to_resume_is_not_restarted_over_its_checkpoint(
    project: Project,
) -> None:
    script = project.script(BY_ITSELF)

    ended = project.run("--", sys.executable, script, "--resume=no")

    assert ended.code != 0
    assert len(project.story()["attempts"]) == 1
    assert any("rocsteady init -- " in line for line in ended.said)


def test_a_reader_that_reads_nothing_does_not_hold_up_a_restart(project: Project) -> None:
    floods = "import sys; sys.stderr.write('x' * (16 << 20) + '\\n'); sys.stderr.flush()\n"
    project.script(CRASHES, "crashes.py")
    project.job(RESUMES, project.script(floods + "exec(open('crashes.py').read())"))

    child = project.start("--no-workarounds", "--max-attempts", "2")  # whose output nobody reads
    until(lambda: "step 8/" in project.log(2), 30)

    assert project.ended(child).code == 3


def test_the_number_of_attempts_is_bounded_and_the_code_is_the_scripts(project: Project) -> None:
    project.job(RESUMES, project.script(CRASHES))

    ended = project.run("--no-workarounds", "--max-attempts", "2")

    assert ended.code == 3
    assert len(project.story()["attempts"]) == 2


def test_a_second_quick_crash_backs_off(project: Project) -> None:
    project.job(RESUMES, project.script(CRASHES))

    ended = project.run("--no-workarounds", "--max-attempts", "3")

    assert ended.code == 3
    first, second, third = project.story()["attempts"]
    assert second["started"] - first["ended"] < 2
    assert third["started"] - second["ended"] >= 5


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_wait_between_attempts_can_be_ended(project: Project, number: int, code: int) -> None:
    project.job(RESUMES, project.script(CRASHES))
    child = project.start("--no-workarounds")
    until(lambda: project.line().get("attempts") == 2 and "step 8/" in project.log(2))
    time.sleep(0.5)  # for it to end

    child.send_signal(number)
    ended = project.ended(child, within=3)

    assert ended.code == code
    assert len(project.story()["attempts"]) == 2


@pytest.mark.parametrize("code", [3, 75, 76])
def test_what_fails_before_its_first_step_is_not_tried_again(project: Project, code: int) -> None:
    project.job(RESUMES, project.script(f"import sys; sys.exit({code})"))

    ended = project.run()

    assert ended.code == code
    assert len(project.story()["attempts"]) == 1


def test_a_command_that_cannot_be_started_ends_as_in_a_shell(project: Project) -> None:
    (project.folder / "plain").write_text("no program")

    missing = project.run("--", "no-such-program")
    plain = project.run("--", "./plain", name=f"{project.name}-2")

    assert (missing.code, "no-such-program" in missing.err) == (127, True)
    assert (plain.code, "./plain" in plain.err) == (126, True)
    assert project.line(f"{project.name}-2")["run"]["outcome"] == "not started"


def test_a_script_without_a_page_that_made_steps_is_not_started_over(project: Project) -> None:
    ended = project.run("--", sys.executable, project.script(CRASHES))

    assert ended.code == 3
    assert len(project.story()["attempts"]) == 1
    assert "cannot resume" in ended.said[0]


@pytest.mark.ci
def test_a_script_that_cannot_resume_is_not_started_over(
    project: Project, torch_python: str
) -> None:
    command = (torch_python, str(VICTIMS / "cannot_resume.py"), "--steps", "20", "--every", "5")

    ended = project.run("--", *command, "--crash-at", "12", within=120)

    assert ended.code == 1
    assert "cannot resume" in ended.said[0]
    assert len(project.story()["attempts"]) == 1
    assert len(list((project.folder / "checkpoints").iterdir())) == 2


def test_20_restarts_from_scratch_lose_no_checkpoint(project: Project, torch_python: str) -> None:
    hashes = project.home / "hashes"
    script = project.script(f"""
        import hashlib, os, pathlib, runpy, sys
        sys.path.insert(0, {str(VICTIMS)!r})
        try:
            runpy.run_path({str(VICTIMS / "cannot_resume.py")!r}, run_name="__main__")
        finally:
            with open({str(hashes)!r}, "a") as stream:
                for path in pathlib.Path("checkpoints").iterdir():
                    stream.write(hashlib.sha256(path.read_bytes()).hexdigest() + "\\n")
            os.kill(os.getpid(), 9)  # which is tried again and again
    """)
    run = [sys.executable, str(VICTIMS / "without_back_off.py"), "run", "--name", project.name]
    crash = ("--steps", "4", "--every", "2", "--crash-at", "4")
    terminal = project.on_terminal(
        *run,
        *("--no-workarounds", "--resume", "never", "--max-attempts", "21", "--", torch_python),
        *(script, *crash),
    )

    assert terminal.code(within=900) == 128 + signal.SIGKILL
    assert len(project.story()["attempts"]) == 21
    written = hashes.read_text().split()
    kept = {digest(path) for path in project.folder.rglob("*.pt")}
    assert len(written) == len(set(written)) == 2 * 21
    assert set(written) <= kept


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_taking_over_shows_the_command_and_goes_on_with_the_next_attempt(project: Project) -> None:
    project.job(RESUMES, project.script(LASTS))
    child = project.start()
    until(lambda: "step 3/" in project.log())
    running = project.say("run", "--resume", project.name)
    child.kill()
    gone = until(lambda: not project.processes(), 5.0, lambda: str(project.processes()))
    assert project.line()["alive"] is False

    (project.folder / "finish").touch()
    ended = project.run("--resume", project.name)

    assert running.code == 76
    assert f"rocsteady run --resume {project.name} --yes" in running.said[-1]
    assert gone < 5
    assert ended.code == 0
    said = "\n".join(ended.said)
    assert f"{sys.executable} train.py" in ended.lines("started")[0]
    assert "rocsteady was killed while running:" in said
    assert [a["number"] for a in project.story()["attempts"]] == [1, 2]
    again = project.run("--resume", project.name)
    assert (again.code, again.said[-1]) == (
        0,
        f"{project.name} is done; there is nothing to resume.",
    )
    unknown = project.say("run", "--resume", "no-such-run")
    assert (unknown.code, "no-such-run" in unknown.err) == (2, True)


def test_a_run_that_cannot_resume_is_not_stopped_for_a_restart(project: Project) -> None:
    child = project.start("--", sys.executable, project.script(LASTS))
    until(lambda: "step 3/" in project.log())

    refused = project.run("--resume", project.name)
    still = project.line()["alive"]
    (project.folder / "finish").touch()
    until(lambda: project.line()["run"]["ended"])

    assert (refused.code, still) == (76, True)
    assert f"{project.name} was not stopped" in refused.err
    assert child.wait() == 0
    assert [a["number"] for a in project.story()["attempts"]] == [1]


def test_a_run_is_restarted_by_hand_from_its_newest_checkpoint(project: Project) -> None:
    project.job(RESUMES, project.script(LASTS))
    child = project.start()
    until(lambda: "step 3/" in project.log())

    restarted = project.run("--detach", "--resume", project.name)
    (project.folder / "finish").touch()
    until(lambda: project.line()["run"]["ended"])

    assert restarted.code == 0, restarted.err
    assert child.wait() != 0
    assert f"{project.name} has ended." in restarted.err
    assert [a["number"] for a in project.story()["attempts"]] == [1, 2]
    assert project.line()["run"]["outcome"] == "done"
    assert project.run("--resume", project.name).code == 0  # it is done


def test_taking_over_does_not_write_over_what_was_saved(project: Project) -> None:
    script = project.script("""
        open("model.pt", "ab").write(b"x")
        exec(open("lasts.py").read())
    """)
    project.script(LASTS, "lasts.py")
    child = project.start("--", sys.executable, script)
    until(lambda: "step 3/" in project.log())
    child.kill()
    until(lambda: not project.processes(), 5.0)
    (project.folder / "finish").touch()

    refused = project.run("--resume", project.name)

    assert (refused.code, "--resume never" in refused.said[-2]) == (76, True)
    assert (project.folder / "model.pt").read_bytes() == b"x"


@pytest.mark.ci
def test_kills_at_random_moments_leave_nothing_but_an_intact_journal(project: Project) -> None:
    project.job(RESUMES, project.script(LASTS))
    chance = random.Random(os.environ.get("ROCSTEADY_TEST_SEED", "3"))  # noqa: S311 - no secret
    slowest, begun = 0.0, 0
    for _ in range(KILLS):
        child = project.start("--resume", project.name) if project.line() else project.start()
        time.sleep(chance.uniform(0.0, 1.5))
        child.kill()
        child.communicate()
        slowest = max(
            slowest, until(lambda: not project.processes(), 5.0, lambda: str(project.processes()))
        )
        if line := project.line():
            begun += line["attempts"] > 0
            assert line["run"]["ended"] is None
            assert line["alive"] is False
            intents = project.story()["intents"]
            assert all(intent["outcome"] for intent in intents[:-1])
    (project.folder / "finish").touch()

    again = ("--resume", project.name) if project.line() else ()  # none may have got so far

    assert project.run(*again).code == 0
    story = project.story()
    intended = [intent["attempt"] for intent in story["intents"] if intent["kind"] == "start"]
    assert intended == sorted(set(intended))
    assert story["attempts"][-1]["number"] == intended[-1]
    assert all(intent["outcome"] for intent in story["intents"])
    print(f"{KILLS} kills, {begun} with an attempt; gone after {slowest:.2f} s at most")  # noqa: T201
