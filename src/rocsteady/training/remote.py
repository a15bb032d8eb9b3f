"""Checkpoints copied to another place, by fsspec: a bucket, a share, another machine.

A store of objects has no rename. So the pointer is what counts there: it is written only after
every file of a checkpoint is there with its size, and nothing is taken from there that it does not
name. What is taken is looked at as if it had always been here.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from rocsteady.checkpoint_folder import LATEST, MANIFEST, BrokenError, read_manifest, step_of

log = logging.getLogger("rocsteady")


class Remote:
    """One place at which copies are kept."""

    def __init__(self, address: str) -> None:
        import fsspec  # noqa: PLC0415 - torch brings it; only where it is asked for

        self._files: Any
        self._files, self._root = fsspec.core.url_to_fs(address)
        self._address = address

    def send(self, folder: Path) -> None:
        """Copy a checkpoint that is whole. A copy that fails is told, and the next one is tried."""
        try:
            target = f"{self._root}/{folder.name}"
            self._files.makedirs(target, exist_ok=True)
            for file in (*read_manifest(folder).files, None):
                path = folder / (file.name if file else MANIFEST)
                self._files.put_file(str(path), f"{target}/{path.name}")
                size = self._files.info(f"{target}/{path.name}")["size"]
                if size != path.stat().st_size:
                    raise OSError(f"{path.name} has {size} bytes there")  # noqa: TRY301
            self._files.pipe_file(f"{self._root}/{LATEST}", f"{folder.name}\n".encode())
        except Exception as error:  # noqa: BLE001 - of any file system; it is whole on this disk
            log.warning(
                "rocsteady: %s was not copied to %s: %s: %s.",
                folder.name,
                self._address,
                type(error).__name__,
                error,
            )

    def fetch(self, root: Path) -> None:
        """Copy the checkpoint that the pointer names to this machine, if there is one."""
        try:
            name = self._files.cat_file(f"{self._root}/{LATEST}").decode().strip()
        except FileNotFoundError:
            return
        if step_of(Path(name)) is None:
            raise BrokenError(f"{self._address}/{LATEST} names {name!r}, which is no checkpoint")
        partial = root / f"unfinished-{name}"
        partial.mkdir(parents=True)
        self._files.get_file(f"{self._root}/{name}/{MANIFEST}", str(partial / MANIFEST))
        whole = root / name
        for path in self._files.ls(f"{self._root}/{name}", detail=False):
            self._files.get_file(path, str(partial / Path(path).name))
        partial.rename(whole)
