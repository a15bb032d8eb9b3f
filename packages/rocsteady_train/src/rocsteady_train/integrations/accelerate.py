"""Accelerate: the folders that ``accelerator.save_state`` writes.

::

    project = ProjectConfiguration("run", automatic_checkpoint_naming=True, total_limit=3)
    accelerator = Accelerator(project_config=project)
    ...                                                 # prepare(), register_for_checkpointing()
    number = resume(accelerator)                        # of the checkpoint; None: there is none
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from rocsteady_train.checkpoints import integrity as file_integrity
from rocsteady_train.checkpoints.integrity import EVERYTHING, newest_whole

PATTERN = "checkpoint_*"
RANDOM = re.compile(r"random_states_[0-9]+\.pkl")  # written after model, optimizer and scheduler
_NUMBER = re.compile(r"[0-9]{1,18}$")


def newest_checkpoint(folder: str | os.PathLike[str], pattern: str = PATTERN) -> str | None:
    """Return the newest checkpoint that is whole, for ``accelerator.load_state``.

    They are in order of the number at the end of their names. Under ``rocsteady run`` the
    supervisor is told that this script goes on by itself.
    """
    root = Path(folder)
    return newest_whole(root, pattern, _checkpoints(root, pattern), what_is_wrong)


def resume(accelerator: Any) -> int | None:  # noqa: ANN401 - of accelerate
    """Load the newest whole checkpoint of the project, and return its number.

    Later ones get numbers that are free: Accelerate refuses to write where there is one.
    """
    root = Path(accelerator.project_dir) / "checkpoints"
    newest = newest_checkpoint(root)
    taken = [number for number, _ in _checkpoints(root, PATTERN)]
    accelerator.project_configuration.iteration = max(taken, default=-1) + 1
    if newest is None:
        return None
    accelerator.load_state(newest)
    return _number_of(Path(newest))


def what_is_wrong(checkpoint: Path) -> str:
    try:
        names = {path.name for path in checkpoint.iterdir()}
        if not any(RANDOM.fullmatch(name) for name in names):
            return "was not finished"
        if wrong := file_integrity.wrong_with_files_in(checkpoint, EVERYTHING):
            return wrong
        missing = _names_before(checkpoint) - names
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    return f"has no {min(missing)}, which the one before it has" if missing else ""


def _names_before(checkpoint: Path) -> set[str]:
    """List what is in the checkpoint before: how many objects are saved is not written anywhere."""
    number = _number_of(checkpoint)
    pattern = _NUMBER.sub("*", checkpoint.name)
    earlier = [
        (other, path)
        for other, path in _checkpoints(checkpoint.parent, pattern)
        if number is not None and other < number
    ]
    return {path.name for path in max(earlier)[1].iterdir()} if earlier else set()


def _checkpoints(root: Path, pattern: str) -> list[tuple[int, Path]]:
    found = [(_number_of(path), path) for path in root.glob(pattern) if path.is_dir()]
    return [(number, path) for number, path in found if number is not None]


def _number_of(checkpoint: Path) -> int | None:
    match = _NUMBER.search(checkpoint.name)
    return int(match.group()) if match else None
