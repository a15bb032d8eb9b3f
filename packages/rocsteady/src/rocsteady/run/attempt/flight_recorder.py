"""What PyTorch's flight recorder says about the collectives of each rank.

The recorder is on since torch 2.11; before, where the user sets TORCH_FR_BUFFER_SIZE (older:
TORCH_NCCL_TRACE_BUFFER_SIZE). It writes a file for each rank when a collective times out, or when
something is written to the pipe of the rank, which exists where TORCH_NCCL_DEBUG_INFO_PIPE_FILE is
set, and which the nccl of torch 2.15 no longer reads. The file is named by TORCH_FR_DUMP_TEMP_FILE
and the rank, else it lies in torch's cache. The files are pickles, so they are read by an unpickler
that knows no classes and no functions. Unconfirmed with RCCL on AMD hardware.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import stat
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from rocsteady_train.untrusted_file import read_regular

from rocsteady.hangs.judgment.blame import CollectiveCount
from rocsteady.model import Value
from rocsteady.system import procfs

STEMS = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
DEFAULT_STEM = "torch/comm_lib_trace_rank_"  # in the user's cache
PIPE_STEM = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
LIMIT = 32 * 1024 * 1024  # bytes of one dump
ENVIRONMENT_LIMIT = 1024 * 1024  # bytes
MAX_FILES = 16
LOOK = 0.1  # seconds


class _Entry(Value, frozen=True, kw_only=True):
    process_group: tuple[str, ...]  # name and description
    collective_seq_id: int
    profiling_name: str
    is_p2p: bool = False


class _RecorderDump(Value, frozen=True, kw_only=True):
    version: str
    entries: tuple[_Entry, ...]


Groups = dict[str, CollectiveCount]  # by the name of the process group


class _NoCode(pickle.Unpickler):
    """Reads numbers, texts and containers of them; refuses everything that could run."""

    def find_class(self, module_name: str, global_name: str, /) -> Any:  # noqa: ANN401 - never returns
        raise pickle.UnpicklingError(f"a dump must not contain {module_name}.{global_name}")

    def persistent_load(self, pid: Any, /) -> Any:  # noqa: ANN401 - never returns
        raise pickle.UnpicklingError(f"a dump must not contain a reference: {pid!r}")


def read_dump(content: bytes) -> Groups:
    """Return what a dump says, JSON or pickled. Raises ValueError if it is neither."""
    try:
        if content[:1] == b"{":
            dump = msgspec.json.decode(content, type=_RecorderDump)
        else:
            dump = msgspec.convert(_NoCode(io.BytesIO(content)).load(), type=_RecorderDump)
    except Exception as error:  # noqa: BLE001 - a broken pickle raises whatever it likes
        raise ValueError(f"not a dump of the flight recorder: {error}") from None
    groups: Groups = {}
    for entry in dump.entries:
        name = entry.process_group[0] if entry.process_group else ""
        known = groups.get(name)
        if not entry.is_p2p and (known is None or entry.collective_seq_id >= known.number):
            called = entry.profiling_name.rpartition(":")[2]
            groups[name] = CollectiveCount(entry.collective_seq_id, called)
    return groups


def comparable(ranks: Mapping[int, Groups]) -> dict[int, CollectiveCount]:
    """Choose the group to compare: one that all ranks are in, if possible one where they differ."""
    shared = set.intersection(*(set(groups) for groups in ranks.values())) if ranks else set()
    if not shared:
        return {}
    chosen = max(
        sorted(shared),
        key=lambda name: (
            len({groups[name].number for groups in ranks.values()}) > 1,
            max(groups[name].number for groups in ranks.values()),
        ),
    )
    return {rank: groups[chosen] for rank, groups in ranks.items()}


def ask_flight_recorders(
    ranks: Mapping[int, int], *, since: float, within: float
) -> dict[int, Groups]:
    """Return what the recorders of these ranks say.

    ``ranks`` are processes by rank, suspects first; ``since`` is a time of
    the wall clock: older files are of another attempt.
    """
    deadline = time.monotonic() + within
    named: dict[int, list[Path]] = {}
    unnamed: dict[int, list[Path]] = {}
    for rank, pid in [*ranks.items()][:MAX_FILES]:
        variables = environment_of(pid)
        stem = next((variables[name] for name in STEMS if variables.get(name)), "")
        if stem:
            named[rank] = [Path(f"/proc/{pid}/cwd", f"{stem}{rank}")]
            if variables.get(PIPE_STEM):
                _request(Path(f"/proc/{pid}/cwd", f"{variables[PIPE_STEM]}{rank}.pipe"))
        else:
            unnamed[rank] = [folder / f"{DEFAULT_STEM}{rank}" for folder in _caches(variables)]
    found = _dumps(unnamed, since)
    if len(found) < len(unnamed):
        found = {}  # all jobs of a user write there, so that some files may be another job's
    while True:
        found |= _dumps({rank: named[rank] for rank in named if rank not in found}, since)
        if not named.keys() - found.keys() or time.monotonic() >= deadline:
            return found
        time.sleep(LOOK)


def _caches(variables: Mapping[str, str]) -> list[Path]:
    """Return the user's caches: older versions of torch look at HOME only."""
    home = [Path(variables["HOME"], ".cache")] if variables.get("HOME") else []
    named = variables.get("XDG_CACHE_HOME")
    return [Path(named), *home] if named else home


def _dumps(files: Mapping[int, Iterable[Path]], since: float) -> dict[int, Groups]:
    found: dict[int, Groups] = {}
    for rank, paths in files.items():
        for path in paths:
            with contextlib.suppress(OSError, ValueError):
                if rank not in found and path.stat().st_mtime >= since:
                    found[rank] = read_dump(read_regular(path, LIMIT))
    return found


def environment_of(pid: int, names: Iterable[str] = ()) -> dict[str, str]:
    """Return the environment that a process was started with, or some of it."""
    try:
        content = procfs.read(f"{procfs.PROC}/{pid}/environ", ENVIRONMENT_LIMIT)
    except OSError:
        return {}
    pairs = (text.partition("=") for text in content.decode("utf-8", "replace").split("\0"))
    wanted = {*names}
    return {name: value for name, _, value in pairs if not wanted or name in wanted}


def _request(pipe: Path) -> None:
    """Ask for a dump: one byte into the pipe, which nobody waits for."""
    never_wait = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
    with contextlib.suppress(OSError):
        descriptor = os.open(pipe, os.O_WRONLY | never_wait)
        try:
            if stat.S_ISFIFO(os.fstat(descriptor).st_mode):  # never into a file
                os.write(descriptor, b"1")
        finally:
            os.close(descriptor)
