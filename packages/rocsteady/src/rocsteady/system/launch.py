"""Starts the keeper with its order, and hears from it whether the command runs."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import select
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocsteady.errors import RocsteadyError
from rocsteady.system import keeper

KEEPER = (sys.executable, "-I", "-S", keeper.__file__)
KEEPER_TRIES = 3  # to start a keeper; one may be killed before it can report
START_LIMIT = 60.0  # seconds for an interpreter to start on a machine that is very busy


@dataclass(frozen=True, kw_only=True)
class LaunchedCommand:
    pid: int
    keeper: subprocess.Popen[bytes]
    control: int  # closing it ends the tree
    status: int  # the keeper's reports


def launch(  # noqa: PLR0913 - all are keyword arguments
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    folder: Path,
    run_id: str,
    streams: Sequence[int],
    tries: int = KEEPER_TRIES,
) -> LaunchedCommand:
    """Start ``command`` with three ``streams``; fails with what exec said, as if done here."""
    # Become the parent of what a keeper leaves that is killed, so that its end can be known.
    ctypes.CDLL(None).prctl(keeper.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    order = _order(command, folder, {**environment, keeper.RUN: run_id})
    ordered, control = os.pipe()
    status, reported = os.pipe()
    try:
        process = subprocess.Popen(
            [*KEEPER, str(ordered), str(reported), run_id],
            stdin=streams[0],
            stdout=streams[1],
            stderr=streams[2],
            pass_fds=(ordered, reported, *_handed_to_us()),
            start_new_session=True,
        )
    except OSError:
        os.close(control)
        os.close(status)
        raise
    finally:
        os.close(ordered)
        os.close(reported)
    report = _first_report(order, control, status)
    if "pid" not in report:
        os.close(control)
        os.close(status)
        process.wait()  # it ends with its control
        if process.returncode != 0:  # it was killed, perhaps when it had started the command
            keeper.end(keeper.Family(process.pid, run_id))
        by_shell = report.get("errno") == errno.ENOEXEC and "/" in command[0]
        if by_shell or (process.returncode < 0 and tries > 1):
            return launch(
                ["/bin/sh", *command] if by_shell else command,  # a script without "#!"
                environment=environment,
                folder=folder,
                run_id=run_id,
                streams=streams,
                tries=tries - 1,
            )
        raise _problem(report, command[0], folder)
    pid = report["pid"]
    return LaunchedCommand(pid=pid, keeper=process, control=control, status=status)


def _problem(report: Mapping[str, Any], command: str, folder: Path) -> Exception:
    if "errno" not in report:
        return RocsteadyError(f"the keeper process could not be started with {sys.executable}")
    what = command if report["what"] == "command" else str(folder)
    return OSError(report["errno"], os.strerror(report["errno"]), what)


def _order(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> bytes:
    variables = [f"{name}={value}" for name, value in environment.items()]
    fields = [str(len(command)), *command, str(folder), *variables]
    if not command or any("\0" in field for field in fields):
        raise ValueError("a command needs at least one word and must not contain NUL characters")
    body = b"\0".join(os.fsencode(field) for field in fields)
    return b"%d\n%b" % (len(body), body)


def _handed_to_us() -> list[int]:
    """Return the descriptors meant for the command, such as those of ``<(...)`` in a shell."""
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the one that listed them
            if int(entry.name) > 2 and os.get_inheritable(int(entry.name)):  # noqa: PLR2004 - stderr
                found.append(int(entry.name))
    return found


def _first_report(order: bytes, control: int, status: int) -> dict[str, Any]:
    try:
        while order:
            order = order[os.write(control, order) :]
    except BrokenPipeError:
        return {}
    ready, _, _ = select.select([status], [], [], START_LIMIT)
    report = b""
    while ready and not report.endswith(b"\n"):
        byte = os.read(status, 1)  # no further than the line's end: the pump reads the rest
        if not byte:
            return {}
        report += byte
    return json.loads(report) if report else {}
