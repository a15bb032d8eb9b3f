"""What the handler of torchrun talks to: the watcher beside its agent, and other hosts.

The watcher is a process and a socket to it. The agent never waits long for one, and goes on without
one that is gone.

What hosts of one job tell each other, through the store at which they meet.

Each generation of ranks has keys of its own. Before it starts, every host counts itself in. Only a
host with something to say also writes what it would do: one that failed, and one of those that
remember what was tried. The leader, host 0, reads these few and writes the decision for all. While
ranks run, a host gives a sign of life a minute, and says no more unless none of its ranks moves.

The store is anything with ``set``, ``get``, ``add`` and ``check``, such as torch's. No clock of
another host is read, and every wait has a bound. Whoever reaches the store can write to it: where
the job has a key, each message is signed for its own place in its own generation.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import select
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, MutableMapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypedDict, cast

from rocsteady_train.untrusted_file import read_regular

COMMAND = "ROCSTEADY_COMMAND"  # a path, or a command quoted as for a shell
SEND_WITHIN = 3.0  # seconds


def rocsteady_command() -> list[str]:
    """Return how to start rocsteady, which may be installed in another environment than torch."""
    if configured := os.environ.get(COMMAND, "").strip():
        is_path = Path(configured).is_file()  # which may contain spaces
        return [configured] if is_path else shlex.split(configured)
    if found := shutil.which("rocsteady"):
        return [found]
    return [sys.executable, "-P", "-m", "rocsteady"]  # which needs Python 3.11, as -P does


class Watcher:
    def __init__(self, options: tuple[str, ...]) -> None:
        ours, theirs = socket.socketpair()
        arguments = ["run", *options, "--ranks", str(theirs.fileno())]
        launched = getattr(sys, "orig_argv", None) or [sys.executable, *sys.argv]  # Python 3.10
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - as the user installed it
                [*rocsteady_command(), *arguments, "--", *launched],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # ^C is for torchrun
            )
        ours.settimeout(0)
        self._socket = ours
        self._heard = b""
        self._left: list[Message] = []  # that came with an answer, and after it
        self.is_gone = False
        self.wants_restart = False
        self.end: int | None = None  # the code that the job is to end with

    def tell(self, **message: object) -> None:
        """Send one message, and never wait long for its reader."""
        self._socket.settimeout(SEND_WITHIN)
        try:
            self._socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            self.is_gone = True
        self._socket.settimeout(0)
        if self.is_gone:
            self.listen()  # its last words may be there

    def listen(self) -> list[dict[str, Any]]:
        try:
            while received := self._socket.recv(65536):
                self._heard += received
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
        self.end = next((int(each["end"]) for each in messages if "end" in each), self.end)
        messages, self._left = [*self._left, *messages], []
        return messages

    def answer(self, within: float, *kinds: str) -> dict[str, Any] | None:
        """Wait for an answer, or for the code to end with; None if there is neither."""
        deadline = time.monotonic() + within
        while True:
            messages = self.listen()
            for place, message in enumerate(messages):
                if any(kind in message for kind in kinds):
                    self._left = messages[place + 1 :]
                    return message
            left = deadline - time.monotonic()
            if self.end is not None or self.is_gone or left <= 0:
                return None if self.end is None else {"end": self.end}
            select.select([self._socket], [], [], left)

    def reap(self) -> None:
        """Leave nothing of one that has ended."""
        self._socket.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)


LEADER = 0
MAX_READ = 16  # proposals of each weight
FIRST_LOOK, LAST_LOOK = 0.05, 1.0  # seconds between two looks: the longer it lasts, the fewer
GOODBYE_WITHIN = 10.0  # seconds for all to read that the job ends, before its store is gone
WEIGHTS = (2, 1)  # of a proposal: it names a cause; it may be one
HEIR = 0  # the weight of one that only remembers
PREFIX = "rocsteady/"
ARRIVED, ALL_ARRIVED, DECISION, READ = "arrived", "all", "decision", "read"
ACCEPTED, REFUSED, REPEATED = "accepted", "refused", "repeated"  # what hosts make of the decision
ENDED = "ended"
KEY, KEY_FILE = "ROCSTEADY_JOB_KEY", "ROCSTEADY_JOB_KEY_FILE"
SHORTEST_KEY, LONGEST_KEY = 16, 4096  # bytes
MAX_BYTES = 256 * 1024  # of a message
SIGNATURE = 64  # characters
HIGHEST_CODE = 255
STILL, MOVED, CONFIRM, HANGS = "still", "moved", "confirm", "hangs"
HANG_LOOK, LAST_HANG_LOOK = 0.5, 3.0  # seconds between two looks of a host that stands still
LOST_LOOK = 8.0  # seconds between two looks for signs of life
READ_EVERY = 10.0  # seconds in which all hosts usually repeat their proof
BEAT = 60.0  # seconds between two signs of life of a host, the only thing that it says unasked
LOST_AFTER = 150.0  # seconds without one, by the clock of the host that waits for it

Message = dict[str, Any]


class Proposal(TypedDict, total=False):
    """What a host would do, as far as agents read it; if it is decided, what all hosts do."""

    weight: int  # how much the host knows of the cause
    end: int  # the exit code; 0: the ranks are started
    workarounds: list[object]  # with which
    tried: list[object]  # what the host remembers
    why: str
    again: bool  # repeat the rendezvous


AGAIN: Proposal = {"again": True}
UNDECIDED: Proposal = {"why": "no watcher decided"}
TYPES = {"weight": int, "end": int, "workarounds": list, "tried": list, "why": str, "again": bool}


class UntrustedError(ValueError):
    """No host of this job has written what was read."""


def job_key(environment: MutableMapping[str, str]) -> bytes:
    """Return the key of the job, and hide it from all that is started here; b"": it has none."""
    key = environment.pop(KEY, "").encode(errors="surrogateescape")
    path = environment.get(KEY_FILE, "")
    if path and not key:
        key = read_regular(path, LONGEST_KEY)
    if (path or key) and len(key.strip()) < SHORTEST_KEY:
        raise ValueError(f"the key of the job has fewer than {SHORTEST_KEY} characters")
    return key.strip()


class Store(Protocol):
    """What torch's stores can do, as far as it is needed."""

    def set(self, key: str, value: str, /) -> None: ...
    def get(self, key: str, /) -> bytes: ...
    def add(self, key: str, amount: int, /) -> int: ...  # returns the new count
    def check(self, keys: list[str], /) -> bool: ...


class HostChannel:
    def __init__(  # noqa: PLR0913 - most have a default
        self,
        store: Store,
        host: int,
        hosts: int,
        *,
        key: bytes = b"",
        generation: str = "",  # of the job; what was signed for another one does not count
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.host, self.hosts = host, hosts
        self._key, self._generation = key, generation
        self._store, self._now, self._sleep = store, now, sleep

    @property
    def leads(self) -> bool:
        return self.host == LEADER

    def propose(self, proposal: Proposal | None) -> None:
        """Count this host in, with what it would do."""
        if proposal is not None:
            self._publish(proposal)
        if self.count(ARRIVED) == self.hosts - 1:
            self.write(ALL_ARRIVED, {})

    def proposals(self, within: float) -> list[Proposal] | None:
        """Wait for the other hosts; return what they would do, None if one did not arrive.

        What no host of this job has written is left out.
        """
        if self.hosts > 1 and not self._until(ALL_ARRIVED, within):
            return None
        found: list[Proposal] = []
        for weight in (*WEIGHTS, HEIR):
            written = min(self.count(f"proposals.{weight}", 0), _most(weight))
            keys = [f"proposal.{weight}.{place + 1}" for place in range(written)]
            for key in filter(self.has, keys):
                try:
                    found.append(self._proposal(key))
                except UntrustedError as error:  # noqa: PERF203 - others are read all the same
                    sys.stderr.write(f"rocsteady: left out: {error}\n")
        return found

    def decide(self, decision: Proposal) -> None:
        self.write(DECISION, decision)

    def decision(self, within: float) -> Proposal | None:
        return self._proposal(DECISION) if self._until(DECISION, within) else None

    def settle(self, within: float, *, accepts: bool) -> bool | None:
        """Return whether all hosts do what was decided; None: one cannot, or does not answer."""
        self.count(ACCEPTED if accepts else REPEATED)
        deadline, look = self._now() + within, FIRST_LOOK
        while not self.count(REFUSED, 0):
            if self.count(ACCEPTED, 0) >= self.hosts:
                return True
            if self.count(REPEATED, 0) or self._now() >= deadline:
                return None
            self._sleep(look)
            look = min(2 * look, LAST_LOOK)
        return False

    def refuse(self) -> None:
        """Have no host do what was decided, and wait until all know."""
        self.count(REFUSED)
        self.part()

    def end_all(self, code: int) -> int:
        """Have all hosts end; return the code, which is that of the first who says so."""
        if not self.has(ENDED):
            self.write(ENDED, {"end": code})
        return self._proposal(ENDED).get("end") or code

    def part(self) -> None:
        """Wait until all hosts know that the job ends: the store ends with one of them."""
        with contextlib.suppress(RuntimeError, OSError):  # it is gone, so all have read it
            count, deadline = self.count(READ), self._now() + GOODBYE_WITHIN
            while count < self.hosts and self._now() < deadline:
                self._sleep(FIRST_LOOK)
                count = self.count(READ, 0)

    def _publish(self, proposal: Proposal) -> None:
        weight = proposal.get("weight", HEIR)
        if weight == HEIR and not proposal.get("tried"):
            return
        place = self.count(f"proposals.{weight}")
        if place <= _most(weight):
            self.write(f"proposal.{weight}.{place}", proposal)

    def _until(self, key: str, within: float) -> bool:
        deadline, look = self._now() + within, FIRST_LOOK
        while not self.has(key):
            left = deadline - self._now()
            if left <= 0:
                return False
            self._sleep(min(look, left))
            look = min(2 * look, LAST_LOOK)
        return True

    def has(self, *keys: str) -> bool:
        return bool(self._store.check([PREFIX + key for key in keys]))

    def count(self, key: str, amount: int = 1) -> int:
        return int(self._store.add(PREFIX + key, amount))

    def write(self, key: str, value: Message | Proposal) -> None:
        text = json.dumps(value)
        self._store.set(PREFIX + key, f"{self._signature(key, text)}\n{text}")

    def read(self, key: str) -> Message:
        content = bytes(self._store.get(PREFIX + key))[: MAX_BYTES + 1]
        signature, _, text = content.decode(errors="replace").partition("\n")
        if not hmac.compare_digest(signature.encode(), self._signature(key, text).encode()):
            raise UntrustedError(self._why_untrusted(key, signature))
        try:
            value = json.loads(text) if len(content) <= MAX_BYTES else None
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise UntrustedError(f"{key} of another host is not one of this version")
        return value

    def _proposal(self, key: str) -> Proposal:
        value = self.read(key)
        typed = all(type(value.get(name, kind())) is kind for name, kind in TYPES.items())
        if not typed or value.get("weight", HEIR) not in (*WEIGHTS, HEIR):
            raise UntrustedError(f"{key} of another host is not one of this version")
        if not 0 <= value.get("end", 0) <= HIGHEST_CODE:
            raise UntrustedError(f"{key} of another host has no exit code")
        return cast("Proposal", value)

    def _signature(self, key: str, text: str) -> str:
        if not self._key:
            return ""
        signed = json.dumps([self._generation, key, text])
        return hmac.new(self._key, signed.encode(), "sha256").hexdigest()

    def _why_untrusted(self, key: str, signature: str) -> str:
        if not self._key and len(signature) == SIGNATURE:
            return f"{key} is signed, and this host has no key: set {KEY} on all hosts"
        if self._key and not signature:
            return f"{key} is not signed, and this host has a key: set {KEY} on all hosts"
        if self._key:
            return f"{key} is not signed with the key of this host, or not for these ranks"
        return f"{key} of another host is not one of this version"


class HangChannel:
    """What hosts tell each other while ranks run: a sign of life a minute, and who stands still."""

    def __init__(self, channel: HostChannel, now: Callable[[], float] = time.monotonic) -> None:
        self._channel, self._now = channel, now
        self._part: Message | None = None  # of this host; None: a rank moves, or may
        self._asked = 0  # the last question
        self._asked_at: float | None = None
        self._moves = 0  # how often hosts had taken their parts back when it was asked
        self._next_read = 0.0
        self._next_look, self._look = 0.0, HANG_LOOK
        self._next_beat, self._next_lost = now() + BEAT, 0.0
        self._lives: dict[int, tuple[int, float]] = {}  # signs of a host so far, and since when

    def heard(self, message: Message) -> None:
        """Pass on what the watcher of this host says."""
        if "part" in message:
            self._tell(message["part"])
        elif "confirmed" in message and self._part is not None:
            self._tell({**self._part, "confirmed": message["confirmed"]})
            self._channel.count(f"confirmed.{message['confirmed']}", 1)
            self._next_look, self._look = 0.0, HANG_LOOK  # the leader decides soon
        elif "hangs" in message:
            self._channel.write(HANGS, {})

    def _tell(self, part: Message | None) -> None:
        channel, before = self._channel, self._part
        if part is not None and (part := {**part, "host": channel.host}) != before:
            self._part = part
            channel.write(f"part.{channel.host}", part)
            if before is None:
                channel.count(STILL, 1)
                self._next_look, self._look = 0.0, HANG_LOOK
        elif part is None and before is not None:
            self._part, self._asked_at = None, None
            channel.count(MOVED, 1)  # first, so that no question outlives it
            channel.count(STILL, -1)
            self._lives.clear()

    def look(self) -> Message | None:
        """Return what the watcher of this host is to be told, from time to time."""
        now = self._now()
        if now >= self._next_beat:
            self._channel.count(f"alive.{self._channel.host}", 1)
            self._next_beat = now + BEAT  # not before: one that failed is given again at once
        if self._part is None or now < self._next_look:
            return None
        message = self._led(now) if self._channel.leads else self._followed()
        message = message or self._lost(now)
        self._look = HANG_LOOK if message else min(1.5 * self._look, LAST_HANG_LOOK)
        self._next_look = now + self._look
        return message

    def _led(self, now: float) -> Message | None:
        """Ask all hosts for their proof, once none of them moves; then have their parts judged.

        No answer is waited for in vain: parts are read again now and then, with those that came.
        """
        channel = self._channel
        moves = channel.count(MOVED, 0)
        if channel.count(STILL, 0) < channel.hosts:
            self._asked_at = None
            return None
        if self._asked_at is None or moves != self._moves:
            self._asked, self._asked_at, self._moves = self._asked + 1, now, moves
            self._next_read = now + READ_EVERY
            channel.write(CONFIRM, {"number": self._asked})
            return {"confirm": self._asked}
        all_confirmed = channel.count(f"confirmed.{self._asked}", 0) >= channel.hosts
        if not all_confirmed and now < self._next_read:
            return None
        self._next_read = now + READ_EVERY
        keys = [f"part.{host}" for host in range(channel.hosts)]
        if not channel.has(*keys):  # whoever is counted has told none; to read it would block
            return None
        parts = [channel.read(key) for key in keys]
        if channel.count(MOVED, 0) != moves:
            return None
        still = now - self._asked_at
        return {"parts": parts, "of": channel.hosts, "asked": self._asked, "still": still}

    def _lost(self, now: float) -> Message | None:
        """Look for hosts that give no sign of life: the leader at all, others at the leader."""
        channel = self._channel
        if now < self._next_lost:
            return None
        self._next_lost = now + LOST_LOOK
        for host in range(channel.hosts) if channel.leads else (LEADER,):
            if host == channel.host:
                continue
            signs = channel.count(f"alive.{host}", 0)
            if self._lives.setdefault(host, (signs, now))[0] != signs:
                self._lives[host] = signs, now
        lost = [host for host, (_, since) in self._lives.items() if now - since > LOST_AFTER]
        return {"lost": lost} if lost else None

    def _followed(self) -> Message | None:
        channel = self._channel
        if channel.has(HANGS) and not channel.read(HANGS):  # it is empty, and signed
            return {"hangs": True}
        if not channel.has(CONFIRM):
            return None
        asked = int(channel.read(CONFIRM)["number"])
        if asked == self._asked:
            return None
        self._asked = asked
        return {"confirm": asked}


def _most(weight: int) -> int:
    return 1 if weight == HEIR else MAX_READ


def heaviest(proposals: Sequence[Proposal]) -> Proposal:
    """Return what all hosts do where no watcher decides: nothing that was tried is forgotten."""
    return max(
        proposals,
        key=lambda each: (each.get("weight", HEIR), len(each.get("tried", ()))),
        default=UNDECIDED,
    )


def ended(code: int, why: str) -> Proposal:
    """Return the proposal to end the job, of a host whose watcher has ended."""
    return {"weight": max(WEIGHTS), "end": code, "why": why}
