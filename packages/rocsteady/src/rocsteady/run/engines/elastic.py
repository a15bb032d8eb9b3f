"""The TorchElastic engine: an attempt is a generation of ranks that somebody's torchrun starts.

rocsteady's rendezvous (``integrations/torchrun.py``) is at the other end of a socket, in torchrun's
agent. It says that a generation is about to start and waits for its variables; it starts a new one
when it is asked to; it says that torchrun is over.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rocsteady.errors import LauncherError
from rocsteady.run.engines.processes import AttemptProcesses, Engine
from rocsteady.run.engines.ranks import RankGroup
from rocsteady.run.job.resume import Launch
from rocsteady.system.child_end import TerminalUse
from rocsteady.system.logfile import LogRules

Message = dict[str, Any]
LOOK = 5.0  # seconds
SEND_WITHIN = 3.0  # seconds


class AgentLink:
    """The agent's end of the conversation, as the watcher sees it."""

    def __init__(
        self, descriptor: int, environment: Mapping[str, str], *, several_hosts: bool = False
    ) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._socket.settimeout(0)
        self._environment = dict(environment)  # the agent's, with which this process was started
        self._heard = b""
        self.pid = os.getppid()  # the agent
        self.several_hosts = several_hosts  # have ranks of its job
        self.is_gone = False
        self.messages: list[dict[str, Any]] = []  # that nobody has taken yet
        self._is_agreed = False  # the hosts have decided what the next generation runs with

    def fileno(self) -> int:
        """Return what to wait for."""
        return self._socket.fileno()

    def listen(self) -> None:
        """Take in what was said."""
        with contextlib.suppress(BlockingIOError):
            try:
                while said := self._socket.recv(65536):
                    self._heard += said
                self.is_gone = True
            except ConnectionError:
                self.is_gone = True
        *lines, self._heard = self._heard.split(b"\n")
        self.messages += [json.loads(line) for line in lines]

    def tell(self, **message: object) -> None:
        """Send one message."""
        self._socket.settimeout(SEND_WITHIN)
        with contextlib.suppress(OSError):
            self._socket.sendall(json.dumps(message).encode() + b"\n")
        self._socket.settimeout(0)

    def agree(self, mine: Message, choose: Callable[[list[Message]], Message]) -> Message | None:
        """Propose what all hosts do before the next generation; return what was decided.

        None if there is no next generation. ``choose`` is asked where this host leads.
        """
        while (message := self._next()) is not None:
            if "generation" in message:  # also once more, if the hosts did not all arrive
                mine = {**mine, "host": message["host"]}
                self.tell(proposal=mine)
            elif "proposals" in message:
                self.tell(decision=choose([mine, *message["proposals"]]))
            elif "decision" in message:
                self._is_agreed = True
                return dict(message["decision"])
        return None

    def start(self, environment: Mapping[str, str], run_id: str) -> AttemptProcesses:
        """Wait for a generation, and have it started with this environment."""
        while not self._is_agreed:
            message = self._next()
            if message is None:
                raise LauncherError("torchrun has ended and will not restart its ranks")
            if "generation" in message:
                break
        self._is_agreed = False
        before = self._environment
        changed = {name: value for name, value in environment.items() if before.get(name) != value}
        unset = dict.fromkeys(name for name in before if name not in environment)
        self.tell(set={**changed, **unset})
        return RankGroup(self, run_id)

    def _next(self) -> Message | None:
        """Wait for a message, and take it; None if torchrun is over, or gone."""
        while not self.messages:
            if self.is_gone:
                return None
            select.select([self], [], [], LOOK)
            self.listen()
        if "over" in self.messages[0]:
            return None
        return self.messages.pop(0)

    def end(self, code: int) -> None:
        """Say how the run ended; torchrun exits with that code."""
        self.tell(end=code)
        self._socket.close()


def engine(link: AgentLink) -> Engine:
    """Return how a generation of ranks of this agent is started."""

    def start(  # noqa: PLR0913 - each is said by name
        launch: Launch,
        *,
        environment: Mapping[str, str],
        folder: Path,
        run_id: str,
        log: Path,
        on_output: Callable[[bytes], None],
        terminal: TerminalUse,
        log_rules: LogRules,
    ) -> AttemptProcesses:
        del folder, log, on_output, terminal, log_rules  # these are the agent's
        return link.start({**environment, **launch.environment}, run_id)

    return start
