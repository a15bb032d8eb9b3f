"""What is done to a folder of checkpoints: one is published, pointed to, or set aside."""

from __future__ import annotations

import contextlib
from pathlib import Path

from rocsteady import checkpoint_folder as folders
from rocsteady.checkpoint_folder import ASIDE, LATEST, MANIFEST, FileFact
from rocsteady.training.tensor_files import sync_folder, write_file


def publish(unfinished: Path, step: int, number: int, facts: list[FileFact]) -> None:
    """Make a checkpoint visible, once everything in it is on the disk."""
    text = folders.manifest_text(step, number, facts)
    write_file(unfinished / MANIFEST, [memoryview(text)])
    sync_folder(unfinished)
    unfinished.rename(unfinished.with_name(folders.name_of(step)))
    sync_folder(unfinished.parent)


def point_to(path: Path) -> None:
    """Say which checkpoint is the latest."""
    pointer = path.with_name(f".{LATEST}")
    pointer.unlink(missing_ok=True)
    write_file(pointer, [memoryview(f"{path.name}\n".encode())])
    pointer.replace(path.with_name(LATEST))
    sync_folder(path.parent)


def set_aside(path: Path) -> None:
    """Keep a checkpoint that is not used, out of the way, under a name that is free."""
    with contextlib.suppress(OSError):  # a disk that cannot be written: it stays
        aside = path.parent / ASIDE
        aside.mkdir(exist_ok=True)
        kept, number = aside / path.name, 2
        while kept.exists():
            kept, number = aside / f"{path.name}-{number}", number + 1
        path.rename(kept)
