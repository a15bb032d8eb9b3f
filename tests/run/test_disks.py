"""Where the journal cannot be written: another place, or one line and nothing is started."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from supervised import Project, until
from torch_stand_in import stand_in_torch

pytestmark = pytest.mark.slow  # real runs, some seconds each

ROOT = os.geteuid() == 0
STEPS = """
    import sys, time
    for step in range(1, int(sys.argv[1]) + 1):
        print(f"step {step}/{sys.argv[1]}", flush=True)
        time.sleep(0.05)
    print("DONE")
"""


def tool(*command: str | Path) -> bool:
    return subprocess.run(list(map(str, command)), capture_output=True, check=False).returncode == 0


def fill(folder: Path) -> None:
    with (folder / "full").open("wb", buffering=0) as stream, contextlib.suppress(OSError):
        while stream.write(bytes(512)):
            pass


@pytest.fixture
def small_disk(project: Project) -> Iterator[Path]:
    """Give a .rocsteady of one megabyte."""
    folder = project.folder / ".rocsteady"
    folder.mkdir(mode=0o700)
    if not ROOT or not tool("mount", "-t", "tmpfs", "-o", "size=1m,mode=0700", "tmpfs", folder):
        pytest.skip("needs root to mount a file system")
    try:
        yield folder
    finally:
        assert tool("umount", folder)


@pytest.fixture
def frozen_disk(project: Project, tmp_path: Path) -> Iterator[Path]:
    """Give a .rocsteady on a disk that can be made to hang."""
    image, folder = tmp_path / "image", project.folder / ".rocsteady"
    folder.mkdir(mode=0o700)
    with image.open("wb") as stream:
        stream.truncate(16 << 20)
    tools = all(map(shutil.which, ("mkfs.ext4", "fsfreeze")))
    if not (ROOT and tools and tool("mkfs.ext4", "-q", "-F", image)):
        pytest.skip("needs root to make a file system")
    if not tool("mount", "-o", "loop", image, folder):
        pytest.skip("this machine lets nobody mount a loop device")
    try:
        yield folder
    finally:
        tool("fsfreeze", "-u", folder)
        until(lambda: tool("umount", folder), 10)


def test_a_project_that_cannot_be_written_keeps_its_journal_at_home(project: Project) -> None:
    project.script(STEPS)
    if ROOT:
        if not tool("mount", "--bind", "-o", "ro", project.folder, project.folder) or not tool(
            "mount", "-o", "remount,ro,bind", project.folder
        ):
            pytest.skip("this machine lets nobody mount a folder")
    else:
        project.folder.chmod(0o500)
    try:
        ended = project.run("--", sys.executable, "train.py", "5")
        line = project.line()
    finally:
        if ROOT:
            assert tool("umount", project.folder)
        else:
            project.folder.chmod(0o700)

    assert ended.code == 0
    assert ended.out.endswith("DONE\n")
    assert any("the journal is kept in" in said for said in ended.said)
    assert str(project.home) in line["run"]["folder"]
    assert line["run"]["outcome"] == "done"


def test_a_folder_without_room_is_not_used(project: Project, small_disk: Path) -> None:
    fill(small_disk)

    ended = project.run("--", sys.executable, project.script("print('hello')"))

    assert ended.code == 0
    assert ended.said[0] == "No space left on device."
    assert ended.said[1].startswith(f"the journal is kept in {project.home}")


def test_a_journal_without_room_starts_nothing(project: Project, small_disk: Path) -> None:
    project.run("--", sys.executable, project.script("print('hello')"))
    fill(small_disk)

    script = project.script("open('ran', 'w')")
    ended = project.run("--", sys.executable, script, name=f"{project.name}-2")

    assert (ended.code, ended.out) == (76, "")
    assert ended.said[0].endswith("Nothing was started.")
    assert not (project.folder / "ran").exists()


def test_a_disk_that_fills_up_meanwhile_does_not_end_the_run(
    project: Project, small_disk: Path
) -> None:
    child = project.start("--", sys.executable, project.script(STEPS), "60")
    until(lambda: "step 5/" in project.log())

    fill(small_disk)
    ended = project.ended(child)

    assert ended.code == 0
    assert ended.out.endswith("step 60/60\nDONE\n")


def test_a_journal_that_is_deleted_is_reported_once_and_at_the_end(project: Project) -> None:
    child = project.start("--", sys.executable, project.script(STEPS), "250")
    until(lambda: "step 5/" in project.log())

    shutil.rmtree(project.folder / ".rocsteady")
    ended = project.ended(child)

    assert ended.code == 0
    assert ended.out.endswith("step 250/250\nDONE\n")
    assert sum("it was deleted" in line for line in ended.said) == 2, ended.err


def test_a_run_whose_journal_cannot_be_written_is_still_restarted(
    project: Project, small_disk: Path
) -> None:
    child = project.start(
        *("--resume", "never", "--", sys.executable),
        project.script("""
            import os, signal, time
            for step in range(1, 200):
                print(f"step {step}/199", flush=True)
                time.sleep(0.05)
                if step == 120 and not os.path.exists("../again"):
                    open("../again", "w").close()
                    os.kill(os.getpid(), signal.SIGKILL)
            print("DONE")
        """),
    )
    until(lambda: "step 5/" in project.log())

    fill(small_disk)
    ended = project.ended(child)

    assert ended.code == 0, ended.err
    assert ended.out.endswith("DONE\n")
    assert sum("cannot be written" in line for line in ended.said) == 1, ended.err


def test_full_shared_memory_leads_to_the_temporary_folder(project: Project) -> None:
    if not ROOT:
        pytest.skip("needs root to mount a file system")
    project.environment["PYTHONPATH"] = stand_in_torch(project)
    fills = "mount -t tmpfs -o size=64k tmpfs /dev/shm && ! head -c 1M /dev/zero > /dev/shm/full"
    shell = ("unshare", "-m", "sh", "-c", f'{fills} 2>&-; exec "$@"', "sh")
    project.program = (*shell, *project.program)

    ended = project.run(
        *("--max-attempts", "1", "--", sys.executable),
        project.script("""
            import threading, time
            from torch.optim import optimizer
            for _ in range(60):
                optimizer.step()
                time.sleep(0.02)
            threading.Event().wait()
        """),
    )

    assert len(ended.lines("hung")) == 1, ended.err
    assert ended.lines("hung")[0].startswith("step 60")
    assert not any("observe" in line for line in ended.said)
    assert not [path for path in project.temporary.iterdir() if "rocsteady" in path.name]


def test_a_hang_on_a_full_disk_is_ended_and_the_disk_reported_once(
    project: Project, small_disk: Path
) -> None:
    project.environment["PYTHONPATH"] = stand_in_torch(project)
    child = project.start(
        *("--max-attempts", "1", "--", sys.executable),
        project.script("""
            import os, threading, time
            from torch.optim import optimizer
            while not os.path.exists("full"):
                optimizer.step()
                print("step", flush=True)
                time.sleep(0.02)
            lock = threading.Lock()
            lock.acquire()
            lock.acquire()
        """),
    )
    until(lambda: project.log().count("step") > 60)

    fill(small_disk)
    (project.folder / "full").touch()
    ended = project.ended(child, within=90)

    assert (ended.code, len(ended.lines("hung"))) == (76, 1), ended.err
    assert "deadlocked" in ended.lines("hung")[0]
    assert sum("was not recorded" in line for line in ended.said) == 1, ended.err
    assert sum("cannot be written" in line for line in ended.said) <= 1, ended.err


def test_a_journal_whose_disk_hangs_does_not_end_the_run(
    project: Project, frozen_disk: Path
) -> None:
    child = project.start("--", sys.executable, project.script(STEPS), "60")
    until(lambda: "step 5/" in project.log())

    assert tool("fsfreeze", "-f", frozen_disk)
    threading.Timer(15, tool, args=("fsfreeze", "-u", frozen_disk)).start()
    ended = project.ended(child)

    assert ended.code == 0
    assert ended.out.endswith("step 60/60\nDONE\n")


def test_a_journal_whose_disk_hangs_starts_nothing(project: Project, frozen_disk: Path) -> None:
    project.run("--", sys.executable, project.script("print('hello')"))
    assert tool("fsfreeze", "-f", frozen_disk)
    start = time.monotonic()
    script = project.script("open('ran', 'w')")

    child = project.start("--", sys.executable, script, name=f"{project.name}-2")
    assert child.stderr is not None
    said = child.stderr.readline().decode()
    waited = time.monotonic() - start
    assert tool("fsfreeze", "-u", frozen_disk)  # the kernel lets nobody go before
    ended = project.ended(child)

    assert waited < 20
    assert (
        said == "rocsteady: the journal's disk did not answer within 10 s. Nothing was started.\n"
    )
    assert ended.code == 76
    assert not (project.folder / "ran").exists()
