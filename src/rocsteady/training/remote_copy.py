"""Checkpoints copied to another place, by fsspec: a bucket, a share, another machine.

A store of objects has no rename. So the pointer is what counts there: it is written only after
every file of a checkpoint is there with its size, and nothing is taken from there that it does not
name. What is taken is looked at as if it had always been here.
"""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

from rocsteady.checkpoint_folder import (
    LATEST,
    MANIFEST,
    UNFINISHED,
    BrokenError,
    parsed_manifest,
    read_manifest,
    step_of,
)
from rocsteady.errors import CheckpointError

log = logging.getLogger("rocsteady")


class Remote:
    """One place at which copies are kept."""

    def __init__(self, address: str) -> None:
        import fsspec  # noqa: PLC0415 - torch brings it; only where it is asked for

        self._files: Any
        self._files, self._root = fsspec.core.url_to_fs(address)
        self.address = address

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
                "rocsteady: %s was not copied to %s: %s.", folder.name, self.address, _text(error)
            )

    def names(self, most: int | None = None) -> list[str]:
        """Name what may be taken from there, the best first: what the pointer names, then older.

        Uploads newer than the pointer are not complete. ``most``: nothing of a later step.
        """
        try:
            named = self._files.cat_file(f"{self._root}/{LATEST}").decode(errors="replace").strip()
        except FileNotFoundError:
            return []
        except Exception as error:
            raise CheckpointError(f"{self.address} cannot be asked: {_text(error)}") from error
        newest = step_of(Path(named))
        if newest is None:
            raise CheckpointError(f"{self.address}/{LATEST} names {named!r}: no checkpoint")
        found = {Path(path).name for path in self._files.ls(self._root, detail=False)}
        steps = {name: step for name in found if (step := step_of(Path(name))) is not None}
        most = newest if most is None else min(most, newest)
        return sorted((n for n in steps if steps[n] <= most), key=lambda n: -steps[n])

    def fetch(self, name: str, root: Path) -> str:
        """Copy a checkpoint to this machine; say what is wrong with it, if something is.

        Only what its manifest names is taken. Nothing is left of a copy that failed.
        """
        partial = root / f"{UNFINISHED}{name}"
        try:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            text = self._files.cat_file(f"{self._root}/{name}/{MANIFEST}")
            (partial / MANIFEST).write_bytes(text)
            for file in parsed_manifest(text, step_of(Path(name))).files:
                self._files.get_file(f"{self._root}/{name}/{file.name}", str(partial / file.name))
            partial.rename(root / name)
        except BrokenError as error:
            return str(error)
        except FileNotFoundError as error:
            return f"is not complete: {_text(error)}"
        except Exception as error:
            raise CheckpointError(
                f"{name} was not copied from {self.address}: {_text(error)}"
            ) from error
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        return ""


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
