"""What this account has agreed to, and what changes how a run is started again.

It is kept in the account's state folder: what came with a project gives no orders.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

import msgspec
from rocsteady_train.untrusted_file import read_regular

from rocsteady.model import Strategy, Value
from rocsteady.store.identity import fingerprint
from rocsteady.store.location import PRIVATE, RUNS, is_own, make_private, memory_file
from rocsteady.store.user_folders import state_folder
from rocsteady.store.values import AttemptRecord, DecisionRecord, Run
from rocsteady.system.atomic_file import write_whole
from rocsteady.typed_values import convert

ACCOUNT_BYTES = 64 * 1024 * 1024  # bytes

T = TypeVar("T", bound=Value)


class UsedFile(Value, frozen=True, kw_only=True):
    """A file as it was when this account agreed to use it."""

    sha256: str
    owner: int | None = None
    commands: tuple[str, ...] = ()  # that a job file would run, a line each


class Agreed(Value, frozen=True, kw_only=True):
    """What a run may start and set: this account began it so, or was asked."""

    sha256: str  # of its name, start, command and job
    strategies: tuple[Strategy, ...] = ()


class Orders(Value, frozen=True, kw_only=True):
    """What a run of a journal starts and sets, as it was read at one moment."""

    run: Run
    known: bool  # this account began it so, or has agreed to it
    others: tuple[Strategy, ...]  # in the journal, that it did not choose

    @property
    def chosen(self) -> bool:
        return self.known and not self.others


def sha256_of(run: Run) -> str:
    content = msgspec.to_builtins((run.name, run.started, run.command, run.job))
    text = json.dumps(content, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def strategies_in(rows: Iterable[AttemptRecord | DecisionRecord]) -> tuple[Strategy, ...]:
    """Return every strategy that rows of a journal have, once."""
    found: list[Strategy] = []
    for row in rows:
        one = row.strategy if isinstance(row, AttemptRecord) else row.decision.strategy
        crashed = row.decision.crashed if isinstance(row, DecisionRecord) else None
        tried = row.decision.tried or () if isinstance(row, DecisionRecord) else ()
        held = (one, *filter(None, [crashed]), *(each.strategy for each in tried))
        found += [each for each in held if each not in found]
    return tuple(found)


def agree_also(strategies: Iterable[Strategy], records: Path) -> None:
    """Keep that a run of this account may also be started with these."""
    agreed = kept(Agreed, records)
    added = [each for each in strategies if agreed and each not in agreed.strategies]
    if agreed is not None and added:
        keep(msgspec.structs.replace(agreed, strategies=(*agreed.strategies, *added)), records)


def account_folder(records: Path) -> Path:
    """Return where this account keeps what belongs to the folder of a run, or to a file."""
    return _state() / RUNS / fingerprint(str(records.absolute()))


def _state() -> Path:
    return memory_file(state_folder()).parent


def keep(value: Value, records: Path) -> None:
    """Keep one value of its kind; where that is not possible, all goes on without."""
    folder = account_folder(records)
    with contextlib.suppress(OSError):
        make_private(_state())
        folder.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        content = json.dumps(msgspec.to_builtins(value))  # names that are not UTF-8 come back
        write_whole(folder / type(value).__name__, content.encode())


def kept(kind: type[T], records: Path) -> T | None:
    if not is_own(_state()):  # whoever can write there could agree for us
        return None
    try:
        content = read_regular(account_folder(records) / kind.__name__, ACCOUNT_BYTES)
        return convert(json.loads(content), kind)
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
