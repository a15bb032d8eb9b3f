"""Neither a script that prints without end nor a full disk costs a checkpoint."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import rocsteady_train
from in_process import count, number
from supervised import Project, until

LIBRARY = Path(rocsteady_train.__file__).parents[1]
MB = 1_000_000
CHATTY = """
    import time
    print("the first line")
    row = "x" * 990
    for step in range({lines}):
        print(f"{{step}} {{row}}")
        if step == {lines} // 2:
            print("password=hunter2-correct-horse")
    print("the last line before the error", flush=True)
    time.sleep(2)  # two pipes: what was printed may arrive after the traceback
    raise KeyError("learning_rate")
"""


@pytest.mark.slow
@pytest.mark.parametrize("limit", [1, 200][: number(1, 2)])
def test_a_chatty_script_fills_no_disk_and_its_error_is_named(project: Project, limit: int) -> None:
    kept = f'log_limit = "{limit}MB"' if limit < 200 else ""
    project.job(kept, project.script(CHATTY.format(lines=2 * limit * 1000)))

    ended = project.run(within=300)

    log = project.folder / ".rocsteady" / "runs" / project.name / "attempt-1.log"
    count("chatty scripts", "tried")
    count("chatty scripts", "logs over their limit", int(log.stat().st_size > limit * MB))
    assert ended.code == 1
    assert "KeyError: 'learning_rate'" in ended.err
    assert limit * MB // 4 < log.stat().st_size <= limit * MB
    said = project.say("logs", project.name, within=120).out
    assert said.startswith("20")  # the year
    assert "the first line" in said[:100]
    assert said.count(f"bytes are left out here: the log of an attempt is limited to {limit}") == 1
    assert "the last line before the error" in said
    assert len(project.say("logs", "-n", "3", project.name).out.splitlines()) == 3
    explained = project.say("explain", "--json", str(log), within=120)
    assert json.loads(explained.out)["failure"]["kind"] == "script-error"
    for form in ("txt", "md", "json", "html"):
        page = project.say("report", project.name, "-o", f"page.{form}")
        assert page.code == 0, page.err
        text = (project.folder / f"page.{form}").read_text()
        assert "learning_rate" in text or form == "txt"
        assert "hunter2" not in text


@pytest.mark.slow
def test_following_a_log_says_where_lines_are_missing(project: Project) -> None:
    project.job(
        'log_limit = "1MB"',
        project.script("""
            import time
            for step in range(40):
                print(("y" * 990 + "\\\\n") * 100, flush=True)
                time.sleep(0.1)
            print("the end")
        """),
    )
    child = project.start()
    until(project.log, why=project.log)

    followed = project.say("logs", "-f", project.name, within=120).out

    assert project.ended(child).code == 0
    assert "attempt-1.log reached log_limit; lines may be missing here" in followed
    assert followed.rstrip().endswith("the end")


@pytest.fixture
def small_disk(project: Project) -> Iterator[Path]:
    """Give a disk of 14 MB, which holds four checkpoints of the training below."""
    mount, folder = shutil.which("mount"), project.folder / "disk"
    if mount is None or sys.platform == "win32" or os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    folder.mkdir()
    command = [mount, "-t", "tmpfs", "-o", "size=14m", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("a small disk cannot be mounted here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)  # noqa: S607 - the system's own


TRAINS = """
    import os, pathlib, time
    import torch, rocsteady_train
    from rocsteady_train import CheckpointError
    model = torch.nn.Linear(500, 500)
    optimizer = torch.optim.Adam(model.parameters())
    data = torch.utils.data.TensorDataset(torch.ones(80, 500))
    keeper = rocsteady_train.Checkpointer("disk/saved", keep=3)
    loop = rocsteady_train.Loop(
        model=model, optimizer=optimizer, loader=torch.utils.data.DataLoader(data), epochs=1,
        checkpoints=keeper, lose_at_most=0.2,
    )
    filler, killed = pathlib.Path("disk/filler"), pathlib.Path("killed")
    for batch in loop:
        loop.step(batch, lambda part: model(part[0]).sum())
        time.sleep(0.1)
        there = sorted(path.name for path in pathlib.Path("disk/saved").glob("step-*"))
        latest = pathlib.Path("disk/saved/latest")
        print("there", *there, "latest", latest.read_text() if latest.exists() else "", flush=True)
        if 20 <= loop.steps < 40 and not killed.exists():
            try:
                with filler.open("ab", buffering=0) as stream:
                    while stream.write(bytes(4096)):
                        pass
            except OSError:
                pass
        if loop.steps == 40 and not killed.exists():
            killed.touch()
            try:
                keeper.save(41, {"own": {"tensor": torch.ones(1_000_000)}}, wait=True)
            except CheckpointError as error:
                print("raised:", error, flush=True)
            os.kill(os.getpid(), 9)
        if loop.steps == 45:
            filler.unlink(missing_ok=True)
"""


@pytest.mark.slow
def test_a_loop_on_a_full_disk_keeps_its_newest_checkpoint_and_saves_again(
    project: Project, small_disk: Path, torch_python: str
) -> None:
    project.environment["PYTHONPATH"] = str(LIBRARY)
    script = project.script(TRAINS)

    ended = project.run("--", torch_python, script, within=240)

    rows = [line.split() for line in ended.out.splitlines() if line.startswith("there")]
    count("trainings on a full disk", "tried")
    assert ended.code == 0, ended.err
    assert "the disk is full: removing step-" in ended.err  # the oldest made way
    assert "was not saved; the log says why. The run continues" in ended.err
    assert "saving checkpoints works again" in ended.err
    assert "raised: step 41 was not saved" in ended.out
    assert all(row[-1] in row[1:-2] for row in rows if row[-1] != "latest")  # it is always there
    steps = [int(row[-1].removeprefix("step-")) for row in rows if row[-1] != "latest"]
    assert steps == sorted(steps)
    stuck = max(steps, key=steps.count)
    assert re.search(rf"resumed +step {stuck}, ", ended.err)
    assert steps[-1] > 60
    count("trainings on a full disk", "resumed from the newest checkpoint and saved again")
    assert small_disk.exists()
