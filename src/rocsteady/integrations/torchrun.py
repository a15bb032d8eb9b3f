"""torchrun: the rendezvous that ``--rdzv-backend rocsteady`` or ``PET_RDZV_BACKEND`` selects.

Stock torchrun loads ``get`` through the entry point group ``torchrun.handlers``. The rendezvous
itself is torch's own, ``c10d``. Each generation of ranks gets a store of its own: with the shared
one of torch 2.13, a restarted rank may read the addresses of a rank that is dead.

Without ``rocsteady run`` above it, the handler starts a watcher beside the agent: ``rocsteady run``
that starts no command, but watches the ranks of this agent. They exchange JSON, one object a line,
over a socket, and the agent never waits for a watcher that is gone.

``rocsteady run`` copies this file beside ``inside/``, for a training environment without rocsteady:
it imports nothing but the standard library and torch's public names.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.distributed.elastic.rendezvous.api import (
    RendezvousClosedError,
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    rendezvous_handler_registry,
)

NAME = "rocsteady"
DELEGATE = "c10d"
OWN_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
TESTED = ((2, 13),)  # versions of torch that the tests ran with
ONE_HOST = "localhost:0"  # a free port
PORT = 29500  # torchrun's own default


RUN = "ROCSTEADY_RUN"  # set for every process of a run
ANSWER_WITHIN = 600.0  # seconds: it may wait for a GPU that failed to come to rest
LAST_WORDS_WITHIN = 30.0
START_WITHIN = 60.0
PERSON_NEEDED = 76  # exit code
OPTIONS = ("--yes", "--anyway")
# Hosts do not agree on remedies yet, and ranks of one job must not differ.
SAME_EVERYWHERE = ("--no-remedies", "--max-attempts", "1000")


class Watcher:
    """The process beside the agent, as the agent sees it."""

    def __init__(self, options: tuple[str, ...]) -> None:
        ours, theirs = socket.socketpair()
        arguments = ["-m", "rocsteady", "run", *options, "--ranks", str(theirs.fileno())]
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - this Python, and what it was started as
                [sys.executable, *arguments, "--", *sys.orig_argv],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # ^C is for torchrun
            )
        ours.settimeout(0)
        self._socket = ours
        self._heard = b""
        self.is_gone = False
        self.wants_restart = False

    def tell(self, **message: object) -> None:
        """Send one message, and never wait for its reader."""
        try:
            self._socket.send(json.dumps(message).encode() + b"\n")
        except OSError:
            self.is_gone = True

    def listen(self) -> list[dict[str, Any]]:
        """Return what was said since the last time."""
        try:
            while said := self._socket.recv(65536):
                self._heard += said
            self.is_gone = True
        except BlockingIOError:
            pass
        except OSError:
            self.is_gone = True
        *lines, self._heard = self._heard.split(b"\n")
        try:
            messages = [json.loads(line) for line in lines]
        except ValueError:
            self.is_gone, messages = True, []
        self.wants_restart |= any("restart" in message for message in messages)
        return messages

    def answer(self, within: float) -> dict[str, Any] | None:
        """Wait for what to start, or with which code to end; None if there is no answer."""
        deadline = time.monotonic() + within
        while not self.is_gone and (left := deadline - time.monotonic()) > 0:
            select.select([self._socket], [], [], left)
            for message in self.listen():
                if "set" in message or "end" in message:
                    return message
        return None

    def reap(self) -> None:
        """Leave no zombie of one that has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)


class Handler(RendezvousHandler):
    """Delegates to torch's own rendezvous, and does what the watcher decides."""

    def __init__(self, inner: Any, *, hosts: int, watched: bool) -> None:  # noqa: ANN401 - torch's
        self._inner = inner
        self._watched = watched
        self._options = OPTIONS if hosts == 1 else OPTIONS + SAME_EVERYWHERE
        self._watcher: Watcher | None = None
        self._before: dict[str, str | None] = {}  # variables that the last generation had changed
        self._generation = 0
        if watched:
            self._start_watcher()

    def get_backend(self) -> str:
        """Return the name that selects this handler."""
        return NAME

    @property
    def use_agent_store(self) -> bool:
        """Tell ranks that the store of the agents is not theirs."""
        return bool(self._inner.use_agent_store)

    def next_rendezvous(self) -> RendezvousInfo:
        """Meet the other hosts, before each generation of ranks."""
        try:
            info = self._inner.next_rendezvous()
        except RendezvousClosedError:
            sys.stderr.write("rocsteady: another host ended the job.\n")
            sys.exit(PERSON_NEEDED)
        if self._watched:
            self._prepare(info)
        return info

    def is_closed(self) -> bool:
        """Tell whether the job is over."""
        return bool(self._inner.is_closed())

    def set_closed(self) -> None:
        """End the job for all hosts."""
        self._inner.set_closed()

    def num_nodes_waiting(self) -> int:
        """Return how many hosts wait to join; more than 0 begins a new generation."""
        watcher = self._watcher
        if watcher is not None and not watcher.is_gone:
            watcher.listen()
            if watcher.wants_restart:
                watcher.wants_restart = False
                watcher.tell(stopping=True)  # the ranks end now, without spending a restart
                return 1
        return int(self._inner.num_nodes_waiting())

    def get_run_id(self) -> str:
        """Return the ID of the job."""
        return str(self._inner.get_run_id())

    def shutdown(self) -> bool:
        """Leave the rendezvous, at the end of the job; with the watcher's exit code, if any."""
        done = bool(self._inner.shutdown())
        watcher, self._watcher = self._watcher, None
        error = sys.exc_info()[1]  # torchrun calls this while its own error is on the way
        if watcher is None or isinstance(error, SystemExit):
            return done
        watcher.tell(over=error is None)
        answer = watcher.answer(LAST_WORDS_WITHIN)
        watcher.reap()
        if answer is not None and answer.get("end"):
            if error is not None:
                sys.stderr.write(f"{error}\n")
            sys.exit(int(answer["end"]))
        return done

    def _prepare(self, info: RendezvousInfo) -> None:
        """Let the watcher decide whether this generation is started, and with which variables."""
        try:
            answer = self._decision(info)
        except Exception as error:  # noqa: BLE001 - whatever it is, torchrun goes on without us
            sys.stderr.write(f"rocsteady: {type(error).__name__}: {error}\n")
            answer = None
        if answer is None:
            sys.stderr.write("rocsteady: the watcher does not answer; the ranks are not watched.\n")
        elif "end" in answer:
            self._end(int(answer["end"]))

    def _decision(self, info: RendezvousInfo) -> dict[str, Any] | None:
        within = ANSWER_WITHIN if self._generation else START_WITHIN
        self._generation += 1
        if self._watcher is None or self._watcher.is_gone:
            self._start_watcher()
        if self._watcher is None:
            return None
        self._watcher.wants_restart = False
        self._watcher.tell(generation=True, host=info.rank, hosts=info.world_size)
        answer = self._watcher.answer(within)
        self._set({} if answer is None else answer.get("set", {}))
        return answer

    def _start_watcher(self) -> None:
        if self._watcher is not None:
            self._watcher.reap()
        try:
            self._watcher = Watcher(self._options)
        except OSError as error:
            self._watcher = None
            sys.stderr.write(f"rocsteady: the watcher could not be started: {error}\n")

    def _set(self, variables: dict[str, str | None]) -> None:
        """Set variables for the ranks that are started next; those of the last ones are reset."""
        for name, value in {**self._before, **variables}.items():
            self._before.setdefault(name, os.environ.get(name))
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    def _end(self, code: int) -> None:
        """End the job on every host, with a code that schedulers know."""
        self._inner.set_closed()
        if self._watcher is not None:
            self._watcher.reap()
        sys.exit(code)


def get() -> Callable[[RendezvousParameters], RendezvousHandler]:
    """Return what makes a handler. torchrun calls this whenever it starts, for every back end."""
    return create


def create(parameters: RendezvousParameters) -> RendezvousHandler:
    """Make the handler of one agent."""
    _check_version(torch.__version__)
    os.environ.setdefault(OWN_STORE, "1")
    inner = RendezvousParameters(
        DELEGATE,
        parameters.endpoint or _endpoint(parameters.max_nodes),
        parameters.run_id,
        parameters.min_nodes,
        parameters.max_nodes,
        parameters.local_addr,
        **parameters.config,
    )
    handler = rendezvous_handler_registry.create_handler(inner)
    watched = RUN not in os.environ and sys.platform == "linux"
    return Handler(handler, hosts=parameters.max_nodes, watched=watched)


def _endpoint(hosts: int) -> str:
    """Return where hosts meet, for a command that names no endpoint."""
    if hosts == 1:
        return ONE_HOST
    from torch.distributed.run import parse_args  # noqa: PLC0415 - torchrun has it by now

    try:
        told = parse_args(sys.argv[1:])
        if told.master_addr not in ("127.0.0.1", "localhost"):
            return f"{told.master_addr}:{told.master_port}"
    except (AttributeError, SystemExit):  # another launcher's arguments
        pass
    if address := os.environ.get("MASTER_ADDR"):
        return f"{address}:{os.environ.get('MASTER_PORT', PORT)}"
    raise ValueError("rocsteady: several hosts need --rdzv-endpoint HOST:PORT or --master-addr")


def _check_version(version: str) -> None:
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None or (int(found[1]), int(found[2])) not in TESTED:
        tested = ", ".join(".".join(map(str, each)) for each in TESTED)
        sys.stderr.write(
            f"rocsteady: torch {version} has not been tested with this rendezvous ({tested} has)."
            " If torchrun fails, unset PET_RDZV_BACKEND.\n"
        )
