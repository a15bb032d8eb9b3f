"""Real runs against their deadlines, and along the options of a plan."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest
from supervised import ROCSTEADY, Project, until

pytestmark = pytest.mark.slow

FOLLOWING = (sys.executable, str(Path(__file__).parents[1] / "victims" / "following.py"))
# Counts up to a number, from what it kept. On what is not the CPU it is slow, and dies at step 270.
COUNTS = """
    import os, pathlib, sys, time
    total, each = int(sys.argv[1]), float(sys.argv[2])
    cpu = os.environ.get("HIP_VISIBLE_DEVICES") == "-1"
    kept = pathlib.Path(sys.argv[4]) if "--resume" in sys.argv else None
    for step in range(int(kept.read_text()) + 1 if kept else 1, total + 1):
        print(f"step {step}/{total}", flush=True)
        time.sleep(0.004 if cpu else each)
        if step % 20 == 0:
            pathlib.Path("part").write_text(str(step))
            os.replace("part", f"step-{step:06}.kept")
        if step == 270 and total == 800 and not cpu:
            os.abort()
"""
RESUMES = """
    [resume]
    arguments = ["--resume", "{checkpoint}"]
    checkpoints = ["*.kept"]
"""


def test_a_deadline_that_slips_is_said_once_and_the_run_goes_on(project: Project) -> None:
    project.job('deadline = "12s"', project.script(COUNTS), "400", "0.05")

    child = project.start()
    until(lambda: (project.line().get("step") or 0) > 20)
    line = project.line()
    ended = project.ended(child)

    assert line["deadline"] == pytest.approx(line["run"]["started"] + 12)
    assert ended.code == 0
    notes = [m["text"] for m in project.story()["messages"] if m["event"] == ""]
    assert len([text for text in notes if "deadline" in text]) == 1, ended.said
    after = project.line()
    assert (after["run"]["outcome"], after["step"], after["attempts"]) == ("done", 400, 1)
    assert after["run"]["ended"] > after["deadline"]


def test_a_restart_takes_the_option_that_is_in_time(project: Project) -> None:
    project.program = FOLLOWING
    project.job(f'deadline = "30s"\n{RESUMES}', project.script(COUNTS), "800", "0.05")

    ended = project.run()
    story = project.story()

    assert ended.code == 0, ended.err
    assert project.decided() == ["option-2", "end"]
    assert story["decisions"][0]["decision"]["why"].startswith(
        "At this pace the run misses the deadline; switching to option 2 of "
    )
    assert story["attempts"][1]["strategy"] == {"device": "cpu"}
    assert len(story["attempts"]) == 2
    assert any("before the deadline" in line for line in ended.lines("done"))


def test_a_run_that_was_left_falls_to_the_next_option_all_the_same(project: Project) -> None:
    project.program = FOLLOWING
    project.job(f'deadline = "30s"\n{RESUMES}', project.script(COUNTS), "800", "0.05")
    child = project.start()
    until(lambda: (project.line().get("step") or 0) > 40)
    child.send_signal(signal.SIGINT)
    assert project.ended(child).code == 130

    project.program = ROCSTEADY
    ended = project.run("--resume", project.name)

    assert ended.code == 0, ended.err
    story = project.story()
    assert "option-2" in project.decided()
    assert story["attempts"][-1]["strategy"] == {"device": "cpu"}


def ruled(project: Project, within: str, failures: str, least: str) -> None:
    project.program = FOLLOWING
    project.environment |= {
        "FOLLOWING_WITHIN": within,
        "FOLLOWING_FAILURES": failures,
        "FOLLOWING_LEAST": least,
    }


def test_an_option_that_is_slower_than_its_rule_is_left_and_the_next_goes_on(
    project: Project,
) -> None:
    ruled(project, "6", "9", "60")
    project.job(RESUMES, project.script(COUNTS), "700", "0.05")

    ended = project.run()
    story = project.story()

    assert ended.code == 0, ended.err
    first, second = story["attempts"]
    assert first["outcome"] == "left for the next option of the plan"
    assert second["strategy"] == {"device": "cpu"}
    assert second["first_step"] > 20  # it went on from what was saved
    assert project.decided()[0] == "option-2"
    assert story["failures"] == []


def test_an_option_that_is_fast_enough_is_kept(project: Project) -> None:
    ruled(project, "4", "9", "2")
    project.job(RESUMES, project.script(COUNTS), "200", "0.05")

    ended = project.run()

    assert ended.code == 0, ended.err
    assert len(project.story()["attempts"]) == 1


def test_an_option_that_fails_as_often_as_its_rule_says_is_left(project: Project) -> None:
    ruled(project, "600", "1", "0.001")
    project.job(RESUMES, project.script(COUNTS), "800", "0.01")

    ended = project.run()
    story = project.story()

    assert ended.code == 0, ended.err
    assert project.decided() == ["option-2", "end"]
    assert story["attempts"][1]["strategy"] == {"device": "cpu"}


def test_a_policy_that_allows_retries_only_holds_for_a_run_that_followed_a_plan(
    project: Project,
) -> None:
    project.program = FOLLOWING
    project.job(f'deadline = "30s"\n{RESUMES}', project.script(COUNTS), "800", "0.05")
    child = project.start()
    until(lambda: (project.line().get("step") or 0) > 40)
    child.send_signal(signal.SIGINT)
    assert project.ended(child).code == 130
    policy = project.home / "policy.toml"
    policy.write_text('mode = "retry"\n')
    project.environment["ROCSTEADY_POLICY"] = str(policy)

    project.program = ROCSTEADY
    ended = project.run("--resume", project.name, "--max-attempts", "3")

    story = project.story()
    assert ended.code != 0
    assert len(story["attempts"]) > 1
    assert set(project.decided()) <= {"retry", "end"}
    assert all(attempt["strategy"] == {} for attempt in story["attempts"])
