"""Saves on a disk that is full, or nearly: python full_disk.py FOLDER (on a disk of 8 MB)."""

from __future__ import annotations

import logging
import shutil
import sys
from pathlib import Path
from typing import Any

import torch
from rocsteady_train import Checkpointer, CheckpointError
from rocsteady_train.checkpoints.folder import name_of
from rocsteady_train.checkpoints.folder_changes import FREE_SHARE

said: list[str] = []


class Kept(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        said.append(record.getMessage())


def state(step: int, text: int = 0) -> dict[str, Any]:
    return {"state": {"step": step, "tensor": torch.full((200_000,), step), "text": "x" * text}}


def fails(checkpointer: Checkpointer, step: int, state: dict[str, Any]) -> None:
    try:
        checkpointer.save(step, state, wait=True)
    except CheckpointError as error:
        assert f"step {step} was not saved" in str(error), error
        return
    raise AssertionError(f"step {step} was saved")


def oldest_makes_way(folder: Path) -> None:
    """Three checkpoints are to be kept, and the disk has room for two and a half."""
    said.clear()
    folder = folder / "makes-way"
    checkpointer = Checkpointer(folder, keep=3)
    for step in (1, 2, 3, 4, 5):
        checkpointer.save(step, state(step), wait=True)
        assert checkpointer.newest == step
        if step == 2:
            spare = int(shutil.disk_usage(folder).total * FREE_SHARE)
            with (folder / "filler").open("wb") as stream:
                stream.write(bytes(shutil.disk_usage(folder).free - spare - 1_000_000))
    there = sorted(path.name for path in folder.glob("step-*"))
    assert there == [name_of(4), name_of(5)], there
    (once,) = said  # three made way, for one reason
    assert "to make room, and from now on the oldest checkpoint at each save" in once, said
    text = {"state": {"step": 6, "text": "x" * 2_200_000}}  # text is not counted beforehand
    checkpointer.save(6, text, wait=True)
    assert sorted(path.name for path in folder.glob("step-*")) == [name_of(5), name_of(6)], said
    fails(checkpointer, 7, state(7, text=20_000_000))
    there = sorted(path.name for path in folder.glob("*-*"))
    assert there == [name_of(6)], "the newest never makes way, and nothing unfinished is left"
    assert checkpointer.newest == 6
    checkpointer.close()
    fresh: dict[str, Any] = {}
    checkpointer = Checkpointer(folder)
    assert checkpointer.restore({"state": fresh}) == 6
    assert fresh["step"] == 6
    checkpointer.close()
    shutil.rmtree(folder)


def main() -> None:
    logging.getLogger("rocsteady").addHandler(Kept())
    folder = Path(sys.argv[1])
    oldest_makes_way(folder)
    said.clear()
    checkpointer = Checkpointer(folder / "checkpoints", keep=1)
    for step in (1, 2, 3):
        checkpointer.save(step, state(step), wait=True)
    assert said == []
    fails(checkpointer, 4, state(4, text=20_000_000))  # text is not counted beforehand
    assert checkpointer.newest == 3
    assert len(said) == 1, said
    assert "step 4 was not saved: OSError: [Errno 28] No space left" in said[0], said
    assert not list(folder.glob("checkpoints/unfinished-*")), "what it took is given back"
    filler = folder / "filler"
    with filler.open("wb") as stream:
        stream.write(bytes(shutil.disk_usage(folder).free - 1_000_000))
    free = shutil.disk_usage(folder).free
    fails(checkpointer, 5, state(5))
    assert "step 5 was not saved: it needs 1.5 MiB, and" in said[1], said
    assert shutil.disk_usage(folder).free == free, "it does not fill the disk"
    checkpointer.save(5, state(5))  # a warning, unless it is waited for
    checkpointer.wait()
    fails(checkpointer, 6, state(6))
    assert len(said) == 2, "the same reason is not told again"
    assert "step 5" in checkpointer.failed or "it needs" in checkpointer.failed
    filler.unlink()
    checkpointer.save(5, state(5), wait=True)  # the same step again: it was not saved
    assert (checkpointer.newest, checkpointer.failed) == (5, "")
    checkpointer.save(6, state(6), wait=True)
    assert checkpointer.newest == 6
    assert len(said) == 2, said
    checkpointer.close()
    fresh: dict[str, Any] = {}
    checkpointer = Checkpointer(folder / "checkpoints")
    assert checkpointer.restore({"state": fresh}) == 6
    assert fresh["step"] == 6
    assert bool((fresh["tensor"] == 6).all())
    checkpointer.close()


if __name__ == "__main__":
    main()
