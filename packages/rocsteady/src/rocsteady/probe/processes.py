"""The processes that payloads run in: forked from one that has imported torch, or fresh."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import time
from collections.abc import Mapping
from datetime import timedelta
from importlib import resources
from pathlib import Path

from rocsteady.errors import RocsteadyError
from rocsteady.system.bounded_call import kill_session
from rocsteady.system.child import Child, Start, start_child
from rocsteady.system.child_end import DETACHED, Exit, Stopping

PACKAGE = "_rocsteady_inside"
START = (
    "import sys; sys.path[:] = [sys.argv[1], *filter(None, sys.path)];"
    f" from {PACKAGE}.payloads.experiment import main; main(sys.argv[2:])"
)
READY_WITHIN = 120.0  # seconds for importing torch
KILLED_WITHIN = 3.0
AT_ONCE = Stopping(terminate_wait=timedelta(0), kill_wait=timedelta(seconds=3))


class UnfitError(RocsteadyError):
    """A process that should fork cannot be trusted to."""


def lay_out(folder: Path) -> Path:
    """Copy the payloads into a folder, and return what to put on the path."""
    site = folder / "site"
    inside = resources.files("rocsteady_train.inside")
    for name in ("", "payloads"):
        target = site / PACKAGE / name
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
        for source in (inside / name if name else inside).iterdir():
            if source.name.endswith(".py") and source.name != "sitecustomize.py":
                (target / source.name).write_bytes(source.read_bytes())
    return site


class Fresh:
    """One payload in an interpreter of its own."""

    def __init__(
        self,
        python: str,
        site: Path,
        request: dict[str, object],
        environment: Mapping[str, str],
        run_id: str,
    ) -> None:
        folder = Path(str(request["folder"]))
        self._child = start_child(
            Start(
                command=[python, "-c", START, str(site), "one", json.dumps(request)],
                environment={**environment, "ROCSTEADY_RUN": run_id},
                folder=folder,
                run_id=run_id,
                log=folder / "output",
                terminal=DETACHED,
            )
        )
        self.pid = self._child.pid

    def ended(self, within: float) -> Exit | None:
        return self._child.wait(within)

    def tree(self) -> tuple[int, ...]:
        return self._child.tree() or (self.pid,)

    def kill(self) -> bool:
        return not self._child.stop(AT_ONCE, first=None).unkillable

    def close(self) -> None:
        self._child.close()


class Forks:
    """An interpreter that has imported torch, and forks payloads."""

    def __init__(
        self, python: str, site: Path, folder: Path, environment: Mapping[str, str], run_id: str
    ) -> None:
        family = getattr(socket, "AF_UNIX", None)
        if family is None or not hasattr(os, "fork"):
            raise UnfitError("this system cannot fork processes")
        address = folder / "forks"
        self._listening = socket.socket(family, socket.SOCK_STREAM)
        self._listening.bind(str(address))
        self._listening.listen(1)
        self._child: Child = start_child(
            Start(
                command=[python, "-c", START, str(site), "serve", str(address)],
                environment={**environment, "ROCSTEADY_RUN": run_id},
                folder=folder,
                run_id=run_id,
                log=folder / "forks.log",
                terminal=DETACHED,
            )
        )
        self._rest = b""
        self._connection = self._accepted()
        self.pid = int(str(self._heard(READY_WITHIN).get("ready", 0)))

    def fork(self, request: dict[str, object]) -> Forked:
        try:
            self._connection.sendall(json.dumps(request).encode() + b"\n")
            message = self._heard(READY_WITHIN)
            while "ended" in message:  # one that could not be killed has ended after all
                message = self._heard(READY_WITHIN)
        except OSError as error:
            raise UnfitError("the forking process does not respond") from error
        if "unfit" in message:
            raise UnfitError(str(message["unfit"]))
        return Forked(self, int(str(message["pid"])))

    def close(self) -> None:
        self._connection.close()
        self._listening.close()
        self._child.stop(AT_ONCE, first=None)
        self._child.close()

    def heard(self, within: float) -> dict[str, object] | None:
        """Return what it told, if it told anything in this time."""
        try:
            return self._heard(within)
        except TimeoutError:
            return None

    def _accepted(self) -> socket.socket:
        deadline = time.monotonic() + READY_WITHIN
        self._listening.settimeout(0.1)
        while time.monotonic() < deadline and self._child.poll() is None:
            with contextlib.suppress(TimeoutError):
                return self._listening.accept()[0]
        self._listening.close()
        self._child.stop(AT_ONCE, first=None)
        self._child.close()
        raise UnfitError("torch could not be imported")

    def _heard(self, within: float) -> dict[str, object]:
        self._connection.settimeout(max(within, 0.001))
        while b"\n" not in self._rest:
            received = self._connection.recv(65536)
            if not received:
                raise UnfitError("the forking process has ended")
            self._rest += received
        line, _, self._rest = self._rest.partition(b"\n")
        message = json.loads(line)
        return message if isinstance(message, dict) else {}


class Forked:
    """One payload in a fork."""

    def __init__(self, forks: Forks, pid: int) -> None:
        self.pid = pid
        self._forks = forks
        self._exit: Exit | None = None

    def ended(self, within: float) -> Exit | None:
        if self._exit is None:
            message = self._forks.heard(within)
            if message is not None and message.get("ended") == self.pid:
                code = os.waitstatus_to_exitcode(int(str(message["status"])))
                self._exit = Exit(code=code) if code >= 0 else Exit(signal=-code)
        return self._exit

    def tree(self) -> tuple[int, ...]:
        return (self.pid,)

    def kill(self) -> bool:
        kill_session(self.pid)
        return self.ended(KILLED_WITHIN) is not None

    def close(self) -> None:
        kill_session(self.pid)


def tidy(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
