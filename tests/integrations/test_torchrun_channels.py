"""What the handler of torchrun talks to: the watcher beside its agent, and other hosts."""

from __future__ import annotations

import json
import os
import shlex
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import pytest
from rocsteady_train.integrations.torchrun_channels import (
    COMMAND,
    MAX_BYTES,
    MAX_READ,
    HangChannel,
    HostChannel,
    Proposal,
    UntrustedError,
    Watcher,
    ended,
    heaviest,
    job_key,
    rocsteady_command,
)

if sys.platform == "win32":
    pytest.skip("runs are of POSIX; Windows is unconfirmed", allow_module_level=True)


WITHIN = 30.0
ENDS = """
    import socket, sys
    socket.socket(fileno=int(sys.argv[sys.argv.index("--ranks") + 1])).sendall({said!r})
"""


@pytest.fixture
def watcher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Watcher]:
    package = tmp_path / "rocsteady"
    package.mkdir()
    (package / "__init__.py").touch()
    lines = [line.strip() for line in ENDS.format(said=request.param).strip().splitlines()]
    (package / "__main__.py").write_text("\n".join(lines))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv(COMMAND, f"{shlex.quote(sys.executable)} -m rocsteady")
    made = Watcher(())
    made._process.wait(WITHIN)
    yield made
    made.reap()


END = pytest.mark.parametrize("watcher", [b'{"end": 76}\n'], indirect=True)


@END
def test_an_end_that_was_heard_between_two_generations_is_not_lost(watcher: Watcher) -> None:
    watcher.listen()  # as while ranks run

    assert (watcher.is_gone, watcher.end) == (True, 76)
    assert watcher.answer(WITHIN, "set") == {"end": 76}


@END
def test_an_end_is_heard_from_a_watcher_that_is_gone_by_the_time_it_is_told_something(
    watcher: Watcher,
) -> None:
    watcher.tell(generation=True)

    assert watcher.answer(WITHIN, "set") == {"end": 76}


AT_ONCE = b'{"accepted": true}\n{"set": {"A": "1"}}\n{"part": null}\n{"end": 75}\n'


@pytest.mark.parametrize("watcher", [AT_ONCE], indirect=True)
def test_what_a_watcher_says_at_once_is_heard_one_by_one(watcher: Watcher) -> None:
    assert watcher.answer(WITHIN, "accepted") == {"accepted": True}
    assert watcher.answer(WITHIN, "set") == {"set": {"A": "1"}}
    assert watcher.listen() == [{"part": None}, {"end": 75}]
    assert watcher.answer(WITHIN, "set") == {"end": 75}


@pytest.mark.parametrize("watcher", [b"", b"not json\n"], indirect=True)
def test_a_watcher_without_last_words_is_not_waited_for(watcher: Watcher) -> None:
    began = time.monotonic()

    watcher.tell(generation=True)

    assert watcher.answer(WITHIN, "set") is None
    assert (watcher.is_gone, watcher.end) == (True, None)
    assert time.monotonic() - began < WITHIN / 2


def installed(folder: Path) -> Path:
    """Put a program called rocsteady into a folder, whose name has a space."""
    folder.mkdir()
    program = folder / "rocsteady"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return program


def test_the_command_is_the_configured_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = installed(tmp_path / "my tools")
    monkeypatch.setenv("PATH", str(installed(tmp_path / "bin").parent))

    monkeypatch.setenv(COMMAND, str(program))
    assert rocsteady_command() == [str(program)]
    monkeypatch.setenv(COMMAND, f"env A=1 {shlex.quote(str(program))}")
    assert rocsteady_command() == ["env", "A=1", str(program)]


def test_else_the_command_is_the_one_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = installed(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{program.parent}")
    monkeypatch.setenv(COMMAND, "")

    assert rocsteady_command() == [str(program)]


def test_else_the_command_is_that_of_this_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(COMMAND, raising=False)

    assert rocsteady_command() == [sys.executable, "-P", "-m", "rocsteady"]


class MemoryStore:
    """What torch's store does, in one process; counts what is asked of it."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.asked: Counter[str] = Counter()
        self._lock = threading.Lock()

    def set(self, key: str, value: str) -> None:
        with self._lock:
            self.asked["set"] += 1
            self.values[key] = value.encode()

    def get(self, key: str) -> bytes:
        with self._lock:
            self.asked["get"] += 1
            return self.values[key]

    def add(self, key: str, amount: int) -> int:
        with self._lock:
            self.asked["add"] += 1
            now = int(self.values.get(key, b"0")) + amount
            self.values[key] = str(now).encode()
            return now

    def check(self, keys: list[str]) -> bool:
        with self._lock:
            self.asked["check"] += 1
            return all(key in self.values for key in keys)


def meet(store: MemoryStore, proposals: list[Proposal | None]) -> list[Proposal | None]:
    """Have every host propose, and the leader choose what weighs most; return what each heard."""
    hosts = len(proposals)

    def host(place: int) -> Proposal | None:
        channel = HostChannel(store, place, hosts)
        if channel.leads:
            others = channel.proposals(WITHIN)
            assert others is not None
            mine: list[Proposal] = [proposals[0]] if proposals[0] else []
            chosen = max([*mine, *others, Proposal()], key=lambda each: each.get("weight", -1))
            channel.decide(cast("Proposal", {**chosen, "heard": len(others)}))
        else:
            channel.propose(proposals[place])
        return channel.decision(WITHIN)

    with ThreadPoolExecutor(hosts) as pool:
        return list(pool.map(host, range(hosts)))


def test_all_hosts_hear_the_same() -> None:
    heard = meet(MemoryStore(), [{"weight": 0}, {"weight": 2, "why": "oom"}, {"weight": 1}, None])

    assert heard == [{"weight": 2, "why": "oom", "heard": 2}] * 4


def test_only_one_of_those_that_remember_writes() -> None:
    remembers: Proposal = {"weight": 0, "tried": [1, 2]}

    heard = meet(MemoryStore(), [None, remembers, remembers, remembers])

    assert heard == [{**remembers, "heard": 1}] * 4


def test_many_failures_do_not_hide_a_cause() -> None:
    perhaps: list[Proposal | None] = [{"weight": 1, "why": str(place)} for place in range(40)]

    heard = meet(MemoryStore(), [None, *perhaps, {"weight": 2, "why": "cause"}])

    assert {json.dumps(each) for each in heard} == {
        json.dumps({"weight": 2, "why": "cause", "heard": MAX_READ + 1})
    }


def test_messages_grow_with_hosts_and_not_faster() -> None:
    asked = {}
    for hosts in (10, 40):
        store = MemoryStore()
        meet(store, [None] * hosts)
        asked[hosts] = store.asked["add"] + store.asked["get"] + store.asked["set"]

    assert asked[40] <= 4 * asked[10]


def test_a_host_that_does_not_arrive_is_not_waited_for_long() -> None:
    store = MemoryStore()
    HostChannel(store, 1, 3).propose(None)

    assert HostChannel(store, 0, 3).proposals(0.2) is None
    assert HostChannel(store, 1, 3).decision(0.2) is None


def test_nobody_leaves_before_all_have_heard_that_the_job_ends() -> None:
    store, heard = MemoryStore(), []

    def late() -> None:
        heard.append(1)
        HostChannel(store, 1, 2).part()

    timer = threading.Timer(0.3, late)
    timer.start()
    HostChannel(store, 0, 2).part()
    timer.join()

    assert heard == [1]


def test_a_store_that_is_gone_keeps_nobody() -> None:
    class Gone(MemoryStore):
        def add(self, key: str, amount: int) -> int:
            raise ConnectionError(f"{key} + {amount}")

    HostChannel(Gone(), 0, 2).part()

    with pytest.raises(ConnectionError):
        HostChannel(Gone(), 1, 2).propose(None)


def test_a_watcher_that_has_ended_proposes_its_code() -> None:
    assert ended(76, "x") == {"weight": 2, "end": 76, "why": "x"}


def test_without_a_watcher_that_decides_nothing_that_was_tried_is_forgotten() -> None:
    heir: Proposal = {"weight": 0, "tried": [1, 2]}
    cause: Proposal = {"weight": 2, "tried": [1], "why": "oom"}

    assert heaviest([heir, cause, {"weight": 1}]) is cause
    assert heaviest([{"weight": 0}, heir]) is heir
    assert heaviest([]) == {"why": "no watcher decided"}


KEY = b"k" * 32


def signed(
    key: bytes = KEY, generation: str = "job 1", store: MemoryStore | None = None
) -> HostChannel:
    return HostChannel(store or MemoryStore(), 0, 2, key=key, generation=generation)


@pytest.mark.parametrize(
    ("writes", "reads"),
    [
        ((KEY, "job 1"), (b"K" * 32, "job 1")),
        ((KEY, "job 1"), (KEY, "job 2")),
        ((KEY, "other 1"), (KEY, "job 1")),
        ((KEY, "job 1"), (b"", "")),
        ((b"", ""), (KEY, "job 1")),
    ],
)
def test_what_is_signed_otherwise_is_not_read(
    writes: tuple[bytes, str], reads: tuple[bytes, str]
) -> None:
    store = MemoryStore()
    signed(*writes, store).decide({"end": 76})

    assert signed(*writes, store).decision(WITHIN) == {"end": 76}
    with pytest.raises(UntrustedError):
        signed(*reads, store).decision(WITHIN)


def test_what_was_signed_for_another_place_is_not_read() -> None:
    store = MemoryStore()
    channel = signed(store=store)
    channel.propose({"weight": 2, "end": 76})
    store.values["rocsteady/decision"] = store.values["rocsteady/proposal.2.1"]

    with pytest.raises(UntrustedError):
        channel.decision(WITHIN)


ILL_TYPED = [
    b"",
    b"{}",
    b"\n",
    b"\n[]",
    b"\nnull",
    b'\n{"end": "76"}',
    b'\n{"end": 256}',
    b'\n{"end": true}',
    b'\n{"weight": 3}',
    b'\n{"weight": 2.0}',
    b'\n{"workarounds": {"a": 1}}',
    b'\n{"tried": 1}',
    b'\n{"why": ["x"]}',
    b'\n{"again": 1}',
    b"\n" + b"[" * 100_000,
    b'\n{"end": ' + b"9" * 5000 + b"}",
    b'\n{"why": "' + b"x" * MAX_BYTES + b'"}',
    b"\n\xff\xfe",
]


@pytest.mark.parametrize("content", ILL_TYPED)
def test_what_is_of_another_type_or_too_long_is_left_out(
    content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    store = MemoryStore()
    store.values.update({"rocsteady/proposal.2.1": content, "rocsteady/proposals.2": b"1"})
    store.values["rocsteady/decision"] = content
    other = HostChannel(store, 1, 2)
    other.propose({"weight": 2, "why": "cause"})

    assert HostChannel(store, 0, 2).proposals(WITHIN) == [{"weight": 2, "why": "cause"}]
    with pytest.raises(UntrustedError):
        other.decision(WITHIN)
    (line,) = capsys.readouterr().err.splitlines()
    assert len(line) < 200


def test_a_key_is_left_to_nothing_that_is_started(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(f" {'f' * 16}\n")
    environment = {"ROCSTEADY_JOB_KEY": "v" * 16, "ROCSTEADY_JOB_KEY_FILE": str(file)}

    assert job_key(environment) == b"v" * 16
    assert environment == {"ROCSTEADY_JOB_KEY_FILE": str(file)}
    assert job_key(environment) == b"f" * 16
    assert job_key({}) == b""


@pytest.mark.parametrize("variable", ["ROCSTEADY_JOB_KEY", "ROCSTEADY_JOB_KEY_FILE"])
def test_a_key_that_could_be_guessed_or_is_no_file_is_none(tmp_path: Path, variable: str) -> None:
    file = tmp_path / "key"
    file.write_text("x" * 15 + "\n")
    value = "x" * 15 if variable.endswith("KEY") else str(file)

    with pytest.raises(ValueError, match="fewer than 16"):
        job_key({variable: value})
    for path in (tmp_path, tmp_path / "absent", "/dev/zero"):
        with pytest.raises(OSError):  # noqa: PT011 - of three kinds
            job_key({"ROCSTEADY_JOB_KEY_FILE": str(path)})


@pytest.mark.parametrize(
    ("answers", "settled"),
    [([True, True], True), ([True, False], None), ([True], None), ([True, None], False)],
)
def test_ranks_start_only_if_all_hosts_accept(answers: list[bool | None], settled: object) -> None:
    """None: refuses."""
    store = MemoryStore()
    for host, answer in enumerate(answers[1:], 1):
        channel = HostChannel(store, host, 2)
        store.add("rocsteady/read", 2)
        channel.refuse() if answer is None else channel.settle(0.0, accepts=answer)

    assert HostChannel(store, 0, 2).settle(0.2, accepts=True) is settled


def test_all_hosts_end_with_the_code_of_the_first() -> None:
    store = MemoryStore()
    assert HostChannel(store, 1, 2).end_all(75) == 75
    assert HostChannel(store, 0, 2).end_all(76) == 75
    store.values["rocsteady/ended"] = b'\n{"end": 0}'
    assert HostChannel(store, 0, 2).end_all(76) == 76  # nobody makes it one that is done


@pytest.mark.parametrize(
    "forged", [{"hangs": b"\n{}"}, {"confirm": b'\n{"number": 1}'}, {"hangs": b"{}"}]
)
def test_with_a_key_no_stranger_says_that_a_job_hangs(forged: dict[str, bytes]) -> None:
    store, clock = MemoryStore(), [0.0]
    channel = HostChannel(store, 1, 2, key=KEY, generation="job 1")
    hangs = HangChannel(channel, lambda: clock[0])
    hangs.heard({"part": {"part": "proven"}})
    store.values.update({f"rocsteady/{key}": value for key, value in forged.items()})
    clock[0] += 1.0

    with pytest.raises(UntrustedError):
        hangs.look()


def test_a_part_that_nobody_has_told_is_not_waited_for() -> None:
    store, clock = MemoryStore(), [0.0]
    hangs = HangChannel(HostChannel(store, 0, 2), lambda: clock[0])
    hangs.heard({"part": {"part": "proven"}})
    store.add("rocsteady/still", 1)  # by a stranger; a store waits for a key that is not there
    told = []
    for _ in range(100):
        clock[0] += 1.0
        told.append(hangs.look())

    assert {"confirm": 1} in told
    assert not any(each and "parts" in each for each in told)
