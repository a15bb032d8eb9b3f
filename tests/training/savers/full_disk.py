"""Saves on a disk that is full, or nearly: python full_disk.py FOLDER (on a disk of 8 MB)."""

from __future__ import annotations

import logging
import shutil
import sys
from pathlib import Path
from typing import Any

import torch

from rocsteady import Checkpointer

said: list[str] = []


class Kept(logging.Handler):
    """Keeps what is said."""

    def emit(self, record: logging.LogRecord) -> None:
        said.append(record.getMessage())


def state(step: int, text: int = 0) -> dict[str, Any]:
    return {"state": {"step": step, "tensor": torch.full((200_000,), step), "text": "x" * text}}


def main() -> None:
    logging.getLogger("rocsteady").addHandler(Kept())
    folder = Path(sys.argv[1])
    checkpointer = Checkpointer(folder / "checkpoints", keep=1)
    for step in (1, 2, 3):
        checkpointer.save(step, state(step), wait=True)
    assert said == []
    checkpointer.save(4, state(4, text=20_000_000), wait=True)  # text is not counted beforehand
    assert len(said) == 1, said
    assert "step 4 was not saved: OSError: [Errno 28] No space left" in said[0], said
    assert not list(folder.glob("checkpoints/unfinished-*")), "what it took is given back"
    filler = folder / "filler"
    with filler.open("wb") as stream:
        stream.write(bytes(shutil.disk_usage(folder).free - 1_000_000))
    free = shutil.disk_usage(folder).free
    checkpointer.save(5, state(5), wait=True)
    assert "step 5 was not saved: it needs 1.6 MB, and" in said[1], said
    assert shutil.disk_usage(folder).free == free, "it does not fill the disk"
    filler.unlink()
    checkpointer.save(6, state(6), wait=True)
    assert checkpointer.saved == 6
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
