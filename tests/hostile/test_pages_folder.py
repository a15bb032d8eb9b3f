"""A script fills its pages folder with anything; the supervisor goes on and can be stopped."""

from __future__ import annotations

import signal
import sys
import time

import pytest
from in_process import count
from supervised import ROCSTEADY, Project, until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="makes FIFOs and devices"),
]
SUFFIXES = (".page", ".note", ".raised", ".resumes", ".read", ".applied", ".stacks")
HOSTILE = f"""
    import os, socket, sys, time
    folder = os.environ["ROCSTEADY_PAGES"]
    for suffix in {SUFFIXES}:
        os.mkfifo(os.path.join(folder, "999" + suffix))
        os.mkfifo(os.path.join(folder, "real" + suffix))
        os.symlink("real" + suffix, os.path.join(folder, "998" + suffix))
        os.symlink("/dev/zero", os.path.join(folder, "997" + suffix))
        os.mkdir(os.path.join(folder, "996" + suffix))
        os.symlink("995" + suffix, os.path.join(folder, "995" + suffix))
        with socket.socket(socket.AF_UNIX) as made:
            os.chdir(folder)
            made.bind("994" + suffix)
        with open(os.path.join(folder, "993" + suffix), "wb") as stream:
            stream.truncate(1 << 40)
        open(os.path.join(folder, "9" * 100 + suffix), "wb").close()
        open(os.path.join(folder, "²" + suffix), "wb").close()
    print("laid out", flush=True)
    time.sleep(float(sys.argv[1]))
"""
MANY = """
    import os, time
    folder = os.environ["ROCSTEADY_PAGES"]
    for number in range(5_000):
        os.symlink("/etc/hostname", f"{folder}/{number + 10_000_000}.page")
    for number in range(5_000):
        open(f"{folder}/{number + 20_000_000}.page", "wb").write(bytes(4096))
    print("laid out", flush=True)
    time.sleep(600)
"""
MOST = f"""
    import os, time
    folder = os.environ["ROCSTEADY_PAGES"]
    for number in range(30_000):
        suffix = {SUFFIXES}[number % {len(SUFFIXES)}]
        open(f"{{folder}}/{{number + 30_000_000}}{{suffix}}", "wb").write(bytes(4096))
    print("laid out", flush=True)
    time.sleep(600)
"""
AT_MOST = 2.0  # seconds, as promised


@pytest.mark.ci
def test_fifos_links_and_devices_do_not_block_the_run(project: Project) -> None:
    ended = project.run("--", sys.executable, project.script(HOSTILE), "1")

    assert ended.code == 0, ended.err
    assert "laid out" in ended.out
    assert not [line for line in ended.said if "bug" in line]


@pytest.mark.parametrize("script", [HOSTILE, MANY, MOST])
def test_a_request_to_end_works_within_two_seconds(project: Project, script: str) -> None:
    child = project.start("--", sys.executable, project.script(script), "600")
    until(lambda: "laid out" in project.log(), why=project.log)
    time.sleep(0.5)  # a few passes over the folder

    began = time.monotonic()
    child.send_signal(signal.SIGTERM)
    ended = project.ended(child)

    took = time.monotonic() - began
    count("SIGTERM while the pages folder is hostile", "tried")
    count("SIGTERM while the pages folder is hostile", "took more than 2 s", int(took >= AT_MOST))
    assert took < AT_MOST
    assert ended.code == 143
    # The next run removes what that one left.
    project.run("--", sys.executable, "-c", "pass", name=f"{project.name}-next")


WAITS = """
    import time
    print("laid out", flush=True)
    time.sleep(600)
"""
BLOCKED = """
    import os
    import rocsteady.run.attempt.attempt as attempt
    from rocsteady.cli.main import main
    def block(*given):
        open("blocked", "w").close()
        reader, writer = os.pipe()
        while True:
            os.read(reader, 1)
    attempt.read_pages = block
    main()
"""


@pytest.mark.ci
def test_a_request_to_end_works_while_the_supervisor_waits_for_ever(project: Project) -> None:
    program = project.script(BLOCKED, "blocked.py")
    project.program = (sys.executable, program)
    child = project.start("--", sys.executable, project.script(WAITS))
    until(lambda: "laid out" in project.log(), why=project.log)
    until((project.folder / "blocked").exists)

    began = time.monotonic()
    child.send_signal(signal.SIGTERM)
    ended = project.ended(child)
    took = time.monotonic() - began
    until(lambda: not project.processes(), 2.0)

    count("SIGTERM while the supervisor waits for ever", "tried")
    count("SIGTERM while the supervisor waits for ever", "took more than 2 s", int(took >= AT_MOST))
    project.program = ROCSTEADY
    assert took < AT_MOST
    assert ended.code == 143
    assert project.line()["run"]["outcome"] == "stopped by the user"
    # The next run removes what that one left.
    project.run("--", sys.executable, "-c", "pass", name=f"{project.name}-next")
