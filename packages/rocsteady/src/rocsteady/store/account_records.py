"""What changes how a run is started again, kept in the account's state folder.

The folder of a run may have come with a project, so it gives no orders.
"""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import TypeVar

import msgspec
from rocsteady_train.untrusted_file import read_regular

from rocsteady.model import Value
from rocsteady.store.identity import fingerprint
from rocsteady.store.location import PRIVATE, RUNS, memory_file
from rocsteady.store.user_folders import state_folder
from rocsteady.system.atomic_file import write_whole
from rocsteady.system.json_bytes import from_json, to_json

ACCOUNT_BYTES = 16 * 1024 * 1024  # bytes

T = TypeVar("T", bound=Value)


def account_folder(records: Path) -> Path:
    """Return where this account keeps what belongs to the folder of a run."""
    return memory_file(state_folder()).parent / RUNS / fingerprint(str(records.absolute()))


def keep(value: Value, records: Path) -> None:
    """Keep one value of its kind; where that is not possible, the run goes on without."""
    folder = account_folder(records)
    with contextlib.suppress(OSError):
        folder.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        write_whole(folder / type(value).__name__, to_json(value))


def kept(kind: type[T], records: Path) -> T | None:
    """Return what was kept of a kind."""
    try:
        content = read_regular(account_folder(records) / kind.__name__, ACCOUNT_BYTES)
        return from_json(content, kind)
    except (OSError, ValueError, RecursionError, msgspec.MsgspecError):
        return None


def forget(records: Path, kind: type[Value] | None = None) -> None:
    """Forget what was kept of a kind, or all of it: a new run has the name of an old one."""
    folder = account_folder(records)
    if kind is None:
        shutil.rmtree(folder, ignore_errors=True)
        return
    with contextlib.suppress(OSError):
        (folder / kind.__name__).unlink()
