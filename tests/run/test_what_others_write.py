"""Restarts beside others who write in the same folder: what is theirs is left as it is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from supervised import ROCSTEADY, Ended, Project, until

pytestmark = pytest.mark.slow
WITHIN = 180.0

# Goes on from its checkpoint if it is there; is killed at step 35 of its first start.
TRAINS = """
import os, signal, sys, time
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.AdamW(model.parameters())
done = 0
if LOADS:
    state = torch.load("ck.pt")
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    done = state["step"]
for step in range(done + 1, 61):
    optimizer.zero_grad()
    model(torch.ones(4)).sum().backward()
    optimizer.step()
    time.sleep(0.02)
    if step % 10 == 0:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        torch.save(state, "ck.pt")
    if step == 35 and not os.path.exists("killed"):
        open("killed", "w").close()
        DIES
print("from", done, "to", step)
"""
KILLED = "os.kill(os.getpid(), signal.SIGKILL)"
# Writes numbered versions of the files that it is given, one after the other, and notes the last.
WRITER = """
import os, sys, time
number = 0
while True:
    number += 1
    for name in sys.argv[2:]:
        with open(name, "wb") as file:
            file.write(b"%08d" % number + bytes(100_000))
        with open(sys.argv[1] + ".part", "w") as note:
            note.write(str(number))
        os.replace(sys.argv[1] + ".part", sys.argv[1])
        time.sleep(0.3)
"""


def trains(
    project: Project,
    *,
    loads: str = 'os.path.exists("ck.pt")',
    dies: str = KILLED,
    name: str = "a.py",
) -> str:
    return project.script(TRAINS.replace("LOADS", loads).replace("DIES", dies), name)


def logged(project: Project, log: str, *command: str) -> subprocess.Popen[bytes]:
    """Start a run whose output goes to a file of the project."""
    with (project.folder / log).open("wb") as stream:
        child = subprocess.Popen(
            [*ROCSTEADY, "run", "--yes", "--", *command],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            cwd=project.folder,
            env=project.environment,
            start_new_session=True,
        )
    project.started.append(child)
    return child


class Writer:
    """Another program, which saves in the folder of a run as long as it goes."""

    def __init__(self, project: Project, *names: str) -> None:
        self._names = [project.folder / name for name in names]
        self._note = project.folder.parent / "written"
        script = project.folder.parent / "writer.py"
        script.write_text(WRITER)
        self._child = subprocess.Popen(
            [sys.executable, script, self._note, *map(str, self._names)], start_new_session=True
        )

    def check(self) -> None:
        """Stop writing; every file must be of the last time that it was written."""
        assert self._child.poll() is None
        self._child.kill()
        self._child.wait()
        last = int(self._note.read_text())
        for path in self._names:
            content = path.read_bytes()
            assert int(content[:8] or b"0") >= last - 1 or len(content) < 8, "an older one"


def resumed_well(ended: Ended) -> None:
    assert ended.code == 0, ended.err
    assert "from 30 to 60" in ended.out, ended.err
    assert "started over" not in ended.err


@pytest.mark.ci
def test_a_sibling_that_saves_beside_a_run(project: Project, torch_python: str) -> None:
    """Neither a file in the folder nor one behind a link nor data that a sync rewrites."""
    shared = project.folder.parent / "shared"
    shared.mkdir()
    (project.folder / "link").symlink_to(shared)
    (project.folder / "data.bin").write_bytes(b"before")
    writer = Writer(project, "other.pt", "link/model.pt", "data.bin", "status.json")

    ended = project.run("--", torch_python, trains(project), within=WITHIN)

    writer.check()
    resumed_well(ended)
    assert "overwrote" not in ended.err
    assert not list((project.folder / ".rocsteady/runs").glob("*/started-over-*"))


def test_two_runs_in_one_folder_with_their_output_in_it(
    project: Project, torch_python: str
) -> None:
    (project.folder / "bb").mkdir()
    runs = {}
    for name, place in (("a.py", "ck.pt"), ("b.py", "bb/m.pt")):
        script = trains(project, name=name)
        text = (project.folder / script).read_text().replace('"killed"', f'"killed-{name}"')
        text = text.replace("ck.pt", place).replace("range(done + 1, 61)", "range(done + 1, 161)")
        (project.folder / script).write_text(text)
        runs[name] = logged(project, f"{name}.log", torch_python, script)
    for name, child in runs.items():
        code = child.wait(WITHIN)
        said = (project.folder / f"{name}.log").read_text()
        assert code == 0, said
        assert "from 30 to 160" in said
        assert "rocsteady: resumed" in said


def test_what_starts_over_is_undone_and_nothing_besides(
    project: Project, torch_python: str
) -> None:
    """A file written by another program of the same attempt is left, and named, with its copy."""
    script = trains(project, loads='os.path.exists("ck.pt") and os.environ.get("NEVER")')
    text = (project.folder / script).read_text()
    text = text.replace(
        "done = 0\n",
        """done = 0
import subprocess
if not os.path.exists("ck.pt"):
    open("copy.h5", "w").write("first")
elif os.path.exists("killed"):
    open("log.csv", "w").write("anew")
    subprocess.run(["cp", "ck.pt", "copy.h5"], check=True)
    os.replace("kept.pt", "moved.pt")
open("kept.pt", "a").write("x") if not os.path.exists("killed") else None
open("log.csv", "a").write("row")
""",
        1,
    )
    (project.folder / script).write_text(text)
    writer = Writer(project, "other.pt")
    child = logged(project, "run.log", torch_python, script)
    until((project.folder / "killed").exists, 60)
    saved = (project.folder / "ck.pt").read_bytes()
    code = child.wait(WITHIN)
    said = (project.folder / "run.log").read_text()

    writer.check()
    assert code == 76, said
    assert "rocsteady: resumed" not in said
    assert "started over instead of resuming" in said
    assert (project.folder / "ck.pt").read_bytes() == saved
    assert (project.folder / "kept.pt").read_text() == "x"
    assert not (project.folder / "moved.pt").exists()
    assert (project.folder / "log.csv").read_text() == "row"
    assert (project.folder / "copy.h5").read_bytes() != b"first"
    assert "copy.h5" in said
    assert "other.pt" in said
    copies = {path.name: path for path in (project.folder / ".rocsteady/runs").rglob("copy.h5")}
    assert copies["copy.h5"].read_text() == "first"


CHANGES_FOLDER = """
import argparse, os, signal, sys, time
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--resume")
args = parser.parse_args()
out = os.path.join("outputs", time.strftime("%H-%M-%S"))
os.makedirs(out, exist_ok=True)
here = os.getcwd()
os.chdir(out)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.AdamW(model.parameters())
done = 0
if args.resume:
    state = torch.load(FOUND)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    done = state["step"]
for step in range(done + 1, 61):
    optimizer.zero_grad()
    model(torch.ones(4)).sum().backward()
    optimizer.step()
    time.sleep(0.02)
    if step % 10 == 0:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        torch.save(state, "last.pt")
    if step == 35 and not os.path.exists(os.path.join(here, "killed")):
        open(os.path.join(here, "killed"), "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
print("from", done, "to", step)
"""


def test_a_script_that_changes_its_folder_finds_its_checkpoint(
    project: Project, torch_python: str
) -> None:
    script = project.script(CHANGES_FOLDER.replace("FOUND", "args.resume"))

    resumed_well(project.run("--", torch_python, script, within=WITHIN))


def test_a_checkpoint_that_is_there_is_not_waited_for(project: Project, torch_python: str) -> None:
    """The script looks for it elsewhere, and will at each try: the run ends, and names both."""
    found = 'os.path.join("..", os.path.basename(args.resume))'
    script = project.script(CHANGES_FOLDER.replace("FOUND", found))

    ended = project.run("--", torch_python, script, within=WITHIN)

    assert ended.code == 1, ended.err
    assert not ended.lines("waiting")
    assert not ended.lines("resumed")
    assert len(project.story()["attempts"]) == 2
    last = " ".join(ended.said)
    assert "../last.pt" in last
    assert "last.pt is there" in last


def test_a_file_with_holes_is_no_reason_not_to_restart(project: Project, torch_python: str) -> None:
    script = trains(project)
    text = (project.folder / script).read_text()
    holes = 'open("cache.bin", "ab").truncate(1 << 42)\n'
    (project.folder / script).write_text(text.replace("done = 0\n", f"done = 0\n{holes}", 1))

    resumed_well(project.run("--", torch_python, script, within=WITHIN))

    assert (project.folder / "cache.bin").stat().st_blocks < 100


def test_what_began_again_after_all_was_killed_goes_on_where_it_says(
    project: Project, torch_python: str
) -> None:
    script = trains(project, dies="time.sleep(600)")
    child = project.start("--", torch_python, script)
    until((project.folder / "killed").exists, 60)
    child.kill()
    for pid in project.processes():
        os.kill(pid, signal.SIGKILL)
    child.wait()

    ended = project.run("--resume", project.name, within=WITHIN)

    resumed_well(ended)
    (resumed,) = ended.lines("resumed")
    assert "step 30" in resumed
    assert "60 steps" in " ".join(ended.lines("done"))


def test_a_folder_that_was_renamed_is_waited_for(project: Project, torch_python: str) -> None:
    script = trains(project, dies="time.sleep(600)")
    child = project.start("--", torch_python, script)
    until((project.folder / "killed").exists, 60)
    elsewhere = project.folder.with_name("elsewhere")
    project.folder.rename(elsewhere)
    try:
        running = project.processes().items()
        trainer = next(pid for pid, line in running if line.split()[1:] == [script])
        os.kill(trainer, signal.SIGKILL)
        assert child.stderr is not None
        said = [child.stderr.readline().decode()]
        while "waiting" not in said[-1]:
            said.append(child.stderr.readline().decode())
            assert said[-1], said
        assert "beginning" not in "".join(said)
    finally:
        elsewhere.rename(project.folder)
    resumed_well(project.ended(child, WITHIN))


@pytest.mark.parametrize("name", ["train", "train.py"])
def test_a_program_that_may_not_be_reached_ends_as_a_shell_says(
    project: Project, name: str
) -> None:
    closed = project.folder / "closed"
    closed.mkdir()
    (closed / name).write_text("#!/bin/sh\n")
    if os.geteuid() == 0:  # who may look everywhere otherwise
        dropped = "--bounding-set=-dac_override,-dac_read_search"
        project.program = ("/usr/bin/setpriv", dropped, *ROCSTEADY)
    closed.chmod(0)
    try:
        ended = project.run("--", f"closed/{name}")
    finally:
        closed.chmod(0o700)

    assert ended.code == 126, ended.err
