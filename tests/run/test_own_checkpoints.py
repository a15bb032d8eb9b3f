"""Which of the files that a run wrote are checkpoints to go on from, told from outside."""

from __future__ import annotations

import json
import os
import pickle
import struct
import time
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from rocsteady.hangs.heartbeat_pages import SavedFile, SavedFiles
from rocsteady.run.checkpoints import checkpoints as checkpoints_module
from rocsteady.run.checkpoints.checkpoints import Checkpoints
from rocsteady.run.checkpoints.own_checkpoints import (
    is_checkpoint_file,
    own_checkpoints,
    set_aside,
    shard_ends,
    usable,
)
from rocsteady.run.job.done_when import pointed_to
from rocsteady.run.job.values import CHECKPOINT, Job, Resume

OPTIMIZER = b"\x80\x02}q\x00(X\x05\x00\x00\x00modelX\x0c\x00\x00\x00param_groups."
WEIGHTS = b"\x80\x02}q\x00X\x05\x00\x00\x00model."


def saved(path: Path, content: bytes = OPTIMIZER, at: float = 1000.0) -> Path:
    """Write a file as torch.save does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", content)
        archive.writestr("archive/data/0", b"\0" * 64)
    os.utime(path, (at, at))
    return path


def other(path: Path, content: bytes = b"{}", at: float = 1000.0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    os.utime(path, (at, at))


def cut(path: Path, at: float) -> None:
    path.write_bytes(path.read_bytes()[:-30])
    os.utime(path, (at, at))


def chosen(folder: Path, since: float = 900.0) -> list[str]:
    return [str(each.path) for each in usable(own_checkpoints(folder, since))]


def test_a_drive_inside_the_project_that_was_there_at_the_start_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, drive = tmp_path / "project", tmp_path / "project" / "checkpoints"
    drive.mkdir(parents=True)
    there = {Path("/"): "ext4", drive: "nfs4", tmp_path / "elsewhere": "nfs4"}
    monkeypatch.setattr(checkpoints_module, "mounts", lambda: there)
    of_project = Checkpoints(Job(command=("python",)), project, project / ".r", None, began=0.0)
    of_all = Checkpoints(Job(command=("python",)), tmp_path, project / ".r", None, began=0.0)
    before = of_project.gone

    there = {Path("/"): "ext4"}

    assert (before, of_project.gone) == (None, drive)  # its mount point is still there
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert of_all.gone is None  # it is started in somebody's home, or above


def test_what_has_an_optimizer_and_was_written_by_the_run_counts(tmp_path: Path) -> None:
    saved(tmp_path / "before.pt", at=800)
    saved(tmp_path / "model.pt", WEIGHTS, at=1002)
    saved(tmp_path / "out/last.pth", at=1001)
    saved(tmp_path / "out/checkpoint.pth.tar", at=1000)
    other(tmp_path / "out/log.json", at=1003)

    assert chosen(tmp_path) == ["out/last.pth", "out/checkpoint.pth.tar"]


@pytest.mark.parametrize("protocol", [2, 4, 5])
@pytest.mark.parametrize(
    ("content", "counts"),
    [
        ({"net": 1, "opt": [0.9, 0.99]}, True),
        ({"state": {"net": 1, "opt_state": {"m": 1}}}, True),
        ({"trainer": {"inner": {"optimizer": {}}}}, True),
        ({"opt.state.0.sum": 1}, True),
        ({"net": {"options": 1, "adopted": 2, "option_a": 3}}, False),
    ],
)
def test_an_optimizer_may_have_a_short_name_and_be_nested(
    tmp_path: Path, protocol: int, content: object, counts: object
) -> None:
    saved(tmp_path / "last.pt", pickle.dumps(content, protocol))

    assert bool(chosen(tmp_path)) is counts


def test_other_endings_count_by_what_is_in_the_file(tmp_path: Path) -> None:
    saved(tmp_path / "state.bin", at=1002)
    saved(tmp_path / "session", at=1001)
    other(tmp_path / "data.bin", b"", at=1003)
    other(tmp_path / "other.bin", b"tokens", at=1004)

    assert chosen(tmp_path) == ["state.bin", "session"]
    assert not any(each.cut_off for each in own_checkpoints(tmp_path, 900))


def test_the_best_counts_only_if_there_is_no_other(tmp_path: Path) -> None:
    saved(tmp_path / "model_best.pt", at=1002)
    assert chosen(tmp_path) == ["model_best.pt"]
    saved(tmp_path / "last.pt", at=1001)
    assert chosen(tmp_path) == ["last.pt"]


@pytest.mark.parametrize(
    ("files", "missing"),
    [
        (("pytorch_model.bin", "optimizer.pt", "trainer_state.json"), "trainer_state.json"),
        (("pytorch_model.bin", "optimizer.bin", "random_states_0.pkl"), "optimizer.bin"),
        (("__0_0.distcp", ".metadata"), ".metadata"),
    ],
)
def test_a_folder_is_one_checkpoint_and_may_be_unfinished(
    tmp_path: Path, files: tuple[str, ...], missing: str
) -> None:
    for step in (10, 20):
        for name in files:
            path = tmp_path / f"out/checkpoint-{step}/{name}"
            if name.endswith((".pt", ".bin")):
                saved(path, at=1000 + step)
            else:
                other(path, b"optimizer.state", 1000 + step) if "json" not in name else other(
                    path, b'{"global_step": 1}', 1000 + step
                )
    assert chosen(tmp_path) == ["out/checkpoint-20", "out/checkpoint-10"]

    (tmp_path / f"out/checkpoint-20/{missing}").unlink()

    assert chosen(tmp_path) == ["out/checkpoint-10"]
    newest = own_checkpoints(tmp_path, 900)[0]
    assert newest.cut_off
    assert missing in newest.wrong


def test_what_a_kill_left_in_the_newest_folder_says_nothing_of_those_before(
    tmp_path: Path,
) -> None:
    """Seen with transformers: safetensors writes to a hidden file first."""
    for step in (10, 20, 30):
        whole = ("optimizer.pt", "chat.jinja") if step < 30 else (".tmpykxaOK", "half.pt")
        for name in whole:
            saved(tmp_path / f"out/checkpoint-{step}/{name}", at=1000 + step)
        time.sleep(0.02)  # the folders tell their order by the clock

    assert chosen(tmp_path) == ["out/checkpoint-20", "out/checkpoint-10"]


class Piece:
    """As torch.distributed.checkpoint describes where a tensor is."""

    def __init__(self, offset: int, length: int) -> None:
        self.relative_path, self.offset, self.length = "__0_0.distcp", offset, length


def test_a_file_that_ends_before_its_metadata_says_is_cut_off(tmp_path: Path) -> None:
    metadata = pickle.dumps({"optimizer.a": Piece(0, 100), "b": Piece(100, 50)}, protocol=4)
    for step, size in ((10, 150), (20, 149)):
        other(tmp_path / f"step_{step}/__0_0.distcp", bytes(size), 1000 + step)
        other(tmp_path / f"step_{step}/.metadata", metadata, 1000 + step)

    assert shard_ends(metadata) == {"__0_0.distcp": 150}
    assert chosen(tmp_path) == ["step_10"]
    assert own_checkpoints(tmp_path, 900)[0].cut_off


@pytest.mark.parametrize("content", [b"", b"\x80\x04", b"\x80\x04h\xff.", b"no pickle"])
def test_metadata_of_another_kind_says_nothing(content: bytes) -> None:
    assert shard_ends(content) == {}


def test_deepspeed_is_told_the_folder_that_has_the_pointer(tmp_path: Path) -> None:
    saved(tmp_path / "ds/global_step20/zero_optim_states.pt")
    other(tmp_path / "ds/latest", b"global_step20")

    assert chosen(tmp_path) == ["ds"]


def deepspeed(folder: Path) -> Job:
    """Write a script with DeepSpeed's engine, and two of its checkpoints, the newer one cut off."""
    script = """
import argparse, deepspeed
parser = argparse.ArgumentParser()
parser.add_argument("--load_dir")
args = parser.parse_args()
if args.load_dir:
    engine.load_checkpoint(args.load_dir)
while engine.global_steps < 100:
    engine.step()
    engine.save_checkpoint("ds")
"""
    (folder / "train.py").write_text(script)
    saved(folder / "ds/global_step20/mp_rank_00_model_states.pt", at=1001)
    os.utime(folder / "ds/global_step20", (1001, 1001))
    cut(saved(folder / "ds/global_step40/mp_rank_00_model_states.pt"), at=1002)
    other(folder / "ds/latest", b"global_step40", at=1002)
    return Job(command=("deepspeed", "train.py"))


@pytest.mark.parametrize("by_job_file", [False, True])
def test_deepspeeds_pointer_names_the_newest_whole_one(
    tmp_path: Path, *, by_job_file: bool
) -> None:
    job, end = deepspeed(tmp_path), None
    if by_job_file:
        resume = Resume(arguments=("--load_dir", CHECKPOINT), checkpoints=("ds",))
        job, end = replace(job, resume=resume), cast("Any", SimpleNamespace(saved=SavedFiles()))
    checkpoints = Checkpoints(job, tmp_path, tmp_path / ".rocsteady", None, began=900.0)
    (tmp_path / "ds/latest").chmod(0o640)  # others of the group may read it

    (announced,) = checkpoints.take_stock(end)

    assert "global_step20" in announced
    assert (tmp_path / "ds/latest").read_text() == "global_step20"
    assert (tmp_path / "ds/latest").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "ds/.global_step40.broken/mp_rank_00_model_states.pt").exists()
    newest = checkpoints.newest()
    assert newest is not None
    assert newest.path == Path("ds")
    assert checkpoints.step_of(newest, (0, 0)).low == 20
    assert not checkpoints.take_stock(end), "only once"


def test_a_checkpoint_that_no_pointer_names_yet_does_no_harm(tmp_path: Path) -> None:
    job = deepspeed(tmp_path)
    other(tmp_path / "ds/latest", b"global_step20", at=1001)
    checkpoints = Checkpoints(job, tmp_path, tmp_path / ".rocsteady", None, began=900.0)

    assert not checkpoints.take_stock()
    assert checkpoints.newest() is not None


RAY = """
import os, torch
import ray.train
from ray.train.torch import TorchTrainer
def train(config):
    first, checkpoint = 0, ray.train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder:
            state = torch.load(os.path.join(folder, "state.pt"))
        optimizer.load_state_dict(state["optimizer"])
        first = state["epoch"] + 1
    for epoch in range(first, 9):
        optimizer.step()
TorchTrainer(train, run_config=RunConfig(name="tiny")).fit()
"""


@pytest.mark.parametrize("named", ["", "checkpoint_2*", "checkpoint_2*/state.pt"])
@pytest.mark.parametrize("whole", [0, 2])
def test_rays_list_names_no_checkpoint_that_was_moved_away(
    tmp_path: Path, whole: int, named: str
) -> None:
    """Ray 2.60.0 does not start if one of its list is not there."""
    (tmp_path / "train.py").write_text(RAY)
    folder = tmp_path / "results/tiny"
    names = [f"checkpoint_2026-11-18_14-52-4{number}.822992" for number in range(whole + 1)]
    for number, name in enumerate(names):
        saved(folder / name / "state.pt", at=1001 + number)
    cut(folder / names[-1] / "state.pt", at=1010)
    results = [{"version": 0, "checkpoint_dir_name": name, "metrics": {}} for name in names]
    listed = {
        "ray_version": "2.60.0",
        "checkpoint_results": results[::-1],  # by a score
        "checkpoint_report_indices": list(range(whole + 1))[::-1],
        "latest_checkpoint_result": results[-1],
        "validated_checkpoint_dir_names": names,
    }
    other(folder / "checkpoint_manager_snapshot.json", json.dumps(listed).encode())
    job, end = Job(command=("python", "train.py")), None
    if named:
        job = replace(job, resume=Resume(checkpoints=(f"results/tiny/{named}",)))
        end = cast("Any", SimpleNamespace(saved=SavedFiles()))
    checkpoints = Checkpoints(job, tmp_path, tmp_path / ".rocsteady", None, began=900.0)

    (announced,) = checkpoints.take_stock(end)

    assert "checkpoint_manager_snapshot.json" in announced
    assert (folder / f".{names[-1]}.broken/state.pt").exists()
    now = json.loads((folder / "checkpoint_manager_snapshot.json").read_text())
    assert now["checkpoint_results"] == results[:-1][::-1]
    assert now["checkpoint_report_indices"] == list(range(whole))[::-1]
    assert now["latest_checkpoint_result"] == (results[-2] if whole else None)
    assert now["validated_checkpoint_dir_names"] == names[:-1]
    assert now["ray_version"] == "2.60.0"


def test_a_pointer_is_no_log_that_a_restart_began_anew(tmp_path: Path) -> None:
    deepspeed(tmp_path)
    other(tmp_path / "latest", b"the newest lines")

    assert is_checkpoint_file(tmp_path / "ds/latest")
    assert not is_checkpoint_file(tmp_path / "latest")


@pytest.mark.parametrize("name", [b"", b".", b"..", b"loop", b"gone", b"a/b", b"\xff"])
def test_a_pointer_to_nowhere_is_none(tmp_path: Path, name: bytes) -> None:
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "a/b").mkdir(parents=True)
    other(tmp_path / "latest", name)

    assert pointed_to(tmp_path) is None


def test_a_file_without_its_end_is_cut_off(tmp_path: Path) -> None:
    saved(tmp_path / "a.pt", at=1001)
    cut(saved(tmp_path / "b.pt"), at=1002)
    other(tmp_path / "c.pt", b"", at=1003)
    header = json.dumps({"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
    other(tmp_path / "d.safetensors", struct.pack("<Q", len(header)) + header + b"\0" * 8, at=1004)

    found = {str(each.path): each.cut_off for each in own_checkpoints(tmp_path, 900)}

    assert found == {"a.pt": False, "b.pt": True, "c.pt": True, "d.safetensors": True}
    assert chosen(tmp_path) == ["a.pt"]


def test_what_is_damaged_in_the_middle_is_not_moved(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.pt")
    content = bytearray(path.read_bytes())
    content[60] ^= 0xFF
    other(path, bytes(content))

    (found,) = own_checkpoints(tmp_path, 900)

    assert found.wrong
    assert not found.cut_off


def test_what_is_set_aside_is_not_found_by_the_usual_patterns(tmp_path: Path) -> None:
    saved(tmp_path / "ckpt-40.pt")
    (tmp_path / "checkpoint-40").mkdir()

    for name in ("ckpt-40.pt", "checkpoint-40"):
        assert set_aside(tmp_path, Path(name)) == Path(f".{name}.broken")

    for pattern in ("*.pt", "ckpt-*", "checkpoint-*"):
        assert not list(tmp_path.glob(pattern))
    saved(tmp_path / ".checkpoint-40.broken/optimizer.pt")
    assert not own_checkpoints(tmp_path, 900)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("checkpoint")]


TRAINER = """
from transformers import Trainer
from transformers.trainer_utils import get_last_checkpoint
trainer = Trainer()
trainer.train(resume_from_checkpoint=get_last_checkpoint("out"))
"""


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("arguments", [(), ("--again",), ("--from", CHECKPOINT)])
def test_a_script_that_chooses_by_itself_finds_no_cut_one_with_a_job_file(
    tmp_path: Path, arguments: tuple[str, ...], *, missing: bool
) -> None:
    (tmp_path / "train.py").write_text(TRAINER)
    for step, at in ((20, 1001), (40, 1002)):
        saved(tmp_path / f"out/checkpoint-{step}/optimizer.pt", at=at)
        other(tmp_path / f"out/checkpoint-{step}/trainer_state.json", b"{}", at=at)
    if missing:
        (tmp_path / "out/checkpoint-40/trainer_state.json").unlink()
    else:
        cut(tmp_path / "out/checkpoint-40/optimizer.pt", at=1002)
    resume = Resume(arguments=arguments, checkpoints=("out/checkpoint-*",))
    job = Job(command=("python", "train.py"), resume=resume)
    checkpoints = Checkpoints(job, tmp_path, tmp_path / ".rocsteady", None, began=900.0)

    checkpoints.take_stock(cast("Any", SimpleNamespace(saved=SavedFiles())))

    told = CHECKPOINT in arguments  # then it does not look at others
    assert (tmp_path / "out/checkpoint-40").exists() is told
    assert (tmp_path / "out/.checkpoint-40.broken").exists() is not told
    newest = checkpoints.newest()
    assert newest is not None
    assert newest.path == Path("out/checkpoint-20")


def test_a_scripts_own_checkpoints_need_no_file_of_a_library(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINER)
    for step, at in ((20, 1001), (40, 1002)):
        saved(tmp_path / f"out/checkpoint-{step}/optimizer.pt", at=at)
    job = Job(command=("python", "train.py"), resume=Resume(checkpoints=("out/checkpoint-*",)))
    checkpoints = Checkpoints(job, tmp_path, tmp_path / ".rocsteady", None, began=900.0)

    assert not checkpoints.take_stock(cast("Any", SimpleNamespace(saved=SavedFiles())))
    newest = checkpoints.newest()
    assert newest is not None
    assert newest.path == Path("out/checkpoint-40")


def test_what_was_there_before_a_run_stays_with_a_job_file(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINER)
    cut(saved(tmp_path / "out/checkpoint-40/optimizer.pt"), at=800)
    job = Job(command=("python", "train.py"), resume=Resume(checkpoints=("out/checkpoint-*",)))
    checkpoints = Checkpoints(job, tmp_path, tmp_path / ".rocsteady", None, began=900.0)

    assert not checkpoints.take_stock(cast("Any", SimpleNamespace(saved=SavedFiles())))
    checkpoints.continue_from(700.0)
    assert (tmp_path / "out/checkpoint-40").exists()


@pytest.mark.parametrize("by_job_file", [False, True])
@pytest.mark.parametrize("last_at", [1003, 1001])
def test_lightnings_last_file_is_replaced_by_the_newest_whole_one(
    tmp_path: Path, last_at: float, *, by_job_file: bool
) -> None:
    script = """
import lightning
trainer = lightning.Trainer()
trainer.fit(model, ckpt_path="last")
"""
    (tmp_path / "train.py").write_text(script)
    whole = saved(tmp_path / "checkpoints/epoch=1-step=40.ckpt", at=1002)
    last = saved(tmp_path / "checkpoints/last.ckpt")
    cut(last, at=last_at)
    before = last.read_bytes()
    job, records = Job(command=("python", "train.py")), tmp_path / ".rocsteady"
    if by_job_file:
        patterns = ("checkpoints/epoch=*-step=*.ckpt", "checkpoints/last.ckpt")
        job = replace(job, resume=Resume(checkpoints=patterns))
    checkpoints = Checkpoints(job, tmp_path, records, None, began=900.0)

    (announced,) = checkpoints.take_stock()

    assert "epoch=1-step=40.ckpt" in announced
    assert last.read_bytes() == whole.read_bytes()
    assert last.stat().st_mtime == whole.stat().st_mtime
    assert (tmp_path / "checkpoints/.last.ckpt.broken").read_bytes() == before


def test_the_last_file_of_another_script_is_not_replaced(tmp_path: Path) -> None:
    script = """
import torch
state = torch.load("last.pt") if os.path.exists("last.pt") else None
if state:
    optimizer.load_state_dict(state["optimizer"])
    step = state["step"]
"""
    (tmp_path / "train.py").write_text(script)
    saved(tmp_path / "snapshot.pt", at=1001)
    cut(saved(tmp_path / "last.pt"), at=1002)
    job, records = Job(command=("python", "train.py")), tmp_path / ".rocsteady"
    checkpoints = Checkpoints(job, tmp_path, records, None, began=900.0)

    assert checkpoints.take_stock()

    assert not (tmp_path / "last.pt").exists()


RESUMES = """
import argparse, torch
parser = argparse.ArgumentParser()
parser.add_argument("--resume")
args = parser.parse_args()
start = 0
if args.resume:
    state = torch.load(args.resume)
    optimizer.load_state_dict(state["optimizer"])
    start = state["step"]
for step in range(start, 100):
    torch.save({"optimizer": optimizer.state_dict(), "step": step}, "own.pt")
"""


def of_a_new_run(folder: Path) -> Checkpoints:
    (folder / "train.py").write_text(RESUMES)
    job = Job(command=("python", "train.py"))
    checkpoints = Checkpoints(job, folder, folder / ".rocsteady", None, began=900.0)
    checkpoints.begin()
    checkpoints.started()
    return checkpoints


def file_of(path: Path) -> SavedFile:
    about = path.stat()
    return SavedFile(str(path), about.st_ino, about.st_mtime_ns)


def stock(checkpoints: Checkpoints, *files: SavedFile, seen: bool = True) -> list[str]:
    """Return what a run may go on from, and move what is cut off, after it saved some files."""
    told = SavedFiles(files=files)
    checkpoints.saved_in(told, seen=seen)
    end = SimpleNamespace(saved=told, heartbeats=(None,), read=None)
    checkpoints.take_stock(cast("Any", end))
    return [str(each.path) for each in checkpoints.whole()]


def test_what_a_sibling_saves_is_neither_taken_nor_moved(tmp_path: Path) -> None:
    checkpoints = of_a_new_run(tmp_path)
    own = file_of(saved(tmp_path / "own.pt", at=1001))
    saved(tmp_path / "siblings.pt", at=1002)
    cut(saved(tmp_path / "just being saved.pt"), at=1003)

    assert stock(checkpoints, own) == ["own.pt"]
    assert (tmp_path / "just being saved.pt").exists()


def test_what_was_renamed_since_it_was_saved_is_still_the_runs(tmp_path: Path) -> None:
    checkpoints = of_a_new_run(tmp_path)
    part = file_of(saved(tmp_path / "own.tmp", at=1001))
    (tmp_path / "own.tmp").rename(tmp_path / "own.pt")
    saved(tmp_path / "siblings.pt", at=1002)

    assert stock(checkpoints, part) == ["own.pt"]


def test_a_run_that_has_saved_nothing_has_no_checkpoint(tmp_path: Path) -> None:
    checkpoints = of_a_new_run(tmp_path)
    saved(tmp_path / "siblings.pt", at=1002)

    assert stock(checkpoints) == []


@pytest.mark.parametrize(
    ("files", "seen"), [((SavedFile("", 0, 0),), True), ((), False)], ids=["in memory", "unseen"]
)
def test_where_it_is_not_known_what_was_saved_all_that_was_written_counts(
    tmp_path: Path, files: tuple[SavedFile, ...], *, seen: bool
) -> None:
    checkpoints = of_a_new_run(tmp_path)
    saved(tmp_path / "own.pt", at=1001)

    assert stock(checkpoints, *files, seen=seen) == ["own.pt"]


@pytest.mark.parametrize("unread", [20, 40])
def test_a_script_that_was_told_which_to_take_and_could_not_load_another(
    tmp_path: Path, unread: int
) -> None:
    (tmp_path / "train.py").write_text(TRAINER)
    for step, at in ((20, 1001), (40, 1002)):
        saved(tmp_path / f"out/ckpt-{step}.pt", at=at)
    cut(tmp_path / "out/ckpt-40.pt", at=1002)
    resume = Resume(arguments=("--resume", CHECKPOINT), checkpoints=("out/ckpt-*.pt",))
    job = Job(command=("python", "train.py"), resume=resume)
    checkpoints = Checkpoints(job, tmp_path, tmp_path / ".rocsteady", None, began=900.0)

    told = SavedFiles(unread=str(tmp_path / f"out/ckpt-{unread}.pt"))
    checkpoints.take_stock(cast("Any", SimpleNamespace(saved=told)))

    assert (tmp_path / "out/.ckpt-40.pt.broken").exists() is (unread == 40)
    assert checkpoints.cleared is (unread == 40)
    assert (tmp_path / "out/ckpt-20.pt").exists()
