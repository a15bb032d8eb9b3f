"""Whoever reaches the store of two hosts can write to it: what that does, and what it does not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

if sys.platform == "win32":
    pytest.skip("runs are of POSIX; Windows is unconfirmed", allow_module_level=True)

from tests.integrations.test_torchrun import free_port

pytestmark = pytest.mark.slow
WITHIN = 150.0  # seconds: less than hosts wait for each other
KEY = "k" * 32
STRANGER = """
import json, os, sys, time
from datetime import timedelta
import torch.distributed as dist
if os.getuid() == 0:  # somebody else, with no right to the files of the agents
    os.setgid(65534)
    os.setuid(65534)
port, prefix, what = int(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
while True:
    try:
        store = dist.TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False,
                              timeout=timedelta(seconds=5))
        break
    except (RuntimeError, dist.DistError):
        time.sleep(0.1)
for key, value in what.items():
    if isinstance(value, int):
        store.add(prefix + key, value)
    else:
        store.set(prefix + key, value)
print("written", flush=True)
sys.stdin.read()
"""
RANK = """
import os, pathlib, sys, time
shown = ("LD_PRELOAD", "HSA_ENABLE_SDMA", "ROCSTEADY_STRATEGY", "ROCSTEADY_JOB_KEY")
print("rank", os.environ["RANK"], {name: os.environ.get(name) for name in shown}, flush=True)
first = pathlib.Path("first")
if sys.argv[1:] and not first.exists():
    first.touch()
    if sys.argv[1] == "fails":
        time.sleep(3.0)  # until its watcher has seen it
        os.kill(os.getpid(), 9)
    time.sleep(100.0)  # until the other host is back
"""
PRELOAD = {"variables": {"LD_PRELOAD": "/somewhere/evil.so"}}


class Hosts:
    """Two agents on this machine, and somebody else who may come first."""

    def __init__(self, folder: Path, python: str, left: ExitStack) -> None:
        self._folder, self._python, self._left = folder, python, left
        self.port = free_port()
        self.agents: list[subprocess.Popen[str]] = []

    def start(self, *words: str, **variables: str) -> None:
        """Start the next agent; the first has the store."""
        number = len(self.agents)
        here = self._folder / f"host-{number % 2}"
        here.mkdir(exist_ok=True)
        script = here / "train.py"
        script.write_text(RANK)
        options = {
            "nnodes": "2",
            "max-restarts": "3",
            "log-dir": "logs",
            "rdzv-id": "job",
            "rdzv-endpoint": f"127.0.0.1:{self.port}",
            "rdzv-conf": f"is_host={str(number % 2 == 0).lower()}",
        }
        chosen = [word for name, value in options.items() for word in (f"--{name}", value)]
        agent = self._started(
            [self._python, "-m", "torch.distributed.run", *chosen, str(script), *words],
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(here),
                "XDG_STATE_HOME": str(here / "state"),
                "PET_RDZV_BACKEND": "rocsteady",
                "ROCSTEADY_COMMAND": f"{sys.executable} -m rocsteady",
                **variables,
            },
            cwd=here,
            stderr=subprocess.STDOUT,
        )
        self.agents.append(agent)

    def stranger(self, what: Mapping[str, object], generation: int = 0) -> None:
        """Have another user write to the store of the agents."""
        written = {
            key: value if isinstance(value, (int, str)) else json.dumps(value)
            for key, value in what.items()
        }
        prefix = f"torch.rendezvous.job.{generation}/rocsteady/"
        command = [self._python, "-c", STRANGER, str(self.port), prefix, json.dumps(written)]
        someone = self._started(command)
        assert someone.stdout is not None
        assert someone.stdout.readline() == "written\n"

    def _started(self, command: list[str], **how: Any) -> subprocess.Popen[str]:  # noqa: ANN401 - options
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **how
        )
        self._left.enter_context(process)
        self._left.callback(process.kill)
        return process

    def ended(self) -> tuple[list[int], list[str]]:
        """Return how the last two agents ended, and what they and their ranks printed."""
        out = [agent.communicate(timeout=WITHIN)[0] for agent in self.agents[-2:]]
        return [agent.returncode for agent in self.agents[-2:]], out


@pytest.fixture
def hosts(tmp_path: Path, ranks_python: str) -> Iterator[Hosts]:
    with ExitStack() as left:
        yield Hosts(tmp_path, ranks_python, left)


def trained(out: list[str]) -> list[str]:
    lines = [line for text in out for line in text.splitlines()]
    return sorted({line[line.index("rank ") :] for line in lines if "'LD_PRELOAD'" in line})


UNCHANGED = str(
    dict.fromkeys(("LD_PRELOAD", "HSA_ENABLE_SDMA", "ROCSTEADY_STRATEGY", "ROCSTEADY_JOB_KEY"))
)
BOTH = [f"rank {rank} {UNCHANGED}" for rank in range(2)]
# As hosts wrote it in turn: what names a variable is no message any more.
VARIABLES = [
    {"host": 1, "weight": 2, "strategy": PRELOAD},
    {"host": 1, "weight": 2, "decision": {"next": "again", "why": "", "strategy": PRELOAD}},
    {"host": 1, "weight": 2, "workarounds": [{"id": "sdma-off", **PRELOAD}]},
]


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("message", VARIABLES)
def test_nobody_sets_the_environment_of_the_ranks_through_the_store(
    hosts: Hosts, message: object, *, signed: bool
) -> None:
    text = json.dumps(message)
    hosts.start()
    hosts.stranger(
        {"proposal.2.1": f"{'0' * 64 if signed else ''}\n{text}", "proposals.2": 1}
        if not isinstance(message, dict) or "workarounds" in message or signed
        else {"proposal.2.1": text, "proposals.2": 1}
    )
    hosts.start()

    codes, out = hosts.ended()

    assert (codes, trained(out)) == ([0, 0], BOTH), out
    assert "left out" in "".join(out)


def test_a_policy_applies_to_what_is_said_for_other_hosts(hosts: Hosts, tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('mode = "retry"\n')
    named = {"host": 1, "weight": 2, "workarounds": [{"id": "sdma-off"}], "remedy": "sdma-off"}
    hosts.start(ROCSTEADY_POLICY=str(policy))
    hosts.stranger({"proposal.2.1": f"\n{json.dumps(named)}", "proposals.2": 1})
    hosts.start(ROCSTEADY_POLICY=str(policy))

    codes, out = hosts.ended()

    assert (codes, trained(out)) == ([0, 0], BOTH), out
    assert "sdma-off: not in --allow" in "".join(out)


def test_a_host_whose_policy_refuses_the_decision_ends_the_job_on_all_of_them(
    hosts: Hosts, tmp_path: Path
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('workarounds = ["retry"]\n')
    named = {"host": 1, "weight": 2, "workarounds": [{"id": "sdma-off"}], "remedy": "sdma-off"}
    both = [{}, {"ROCSTEADY_POLICY": str(policy)}]  # the place of each is drawn by torch
    hosts.start(**both[0])
    hosts.stranger({"proposal.2.1": f"\n{json.dumps(named)}", "proposals.2": 1})
    hosts.start(**both[1])

    codes, out = hosts.ended()

    if "left out" in out[1]:  # it leads
        assert (codes, trained(out)) == ([0, 0], BOTH), out
    else:
        assert (codes, trained(out)) == ([76, 76], []), out
        assert "host 1 names sdma-off: not in --allow" in out[1]
        assert "another host does not do what the hosts decided" in out[0]


def test_with_a_key_what_a_stranger_writes_is_left_out_and_restarts_work(hosts: Hosts) -> None:
    named = {"host": 1, "weight": 2, "workarounds": [{"id": "sdma-off"}]}
    hosts.start("fails", ROCSTEADY_JOB_KEY=KEY)
    for generation in (0, 1):
        hosts.stranger({"proposal.2.1": f"\n{json.dumps(named)}", "proposals.2": 1}, generation)
    hosts.start("waits", ROCSTEADY_JOB_KEY=KEY)

    codes, out = hosts.ended()

    assert (codes, trained(out)) == ([0, 0], BOTH), out
    assert "".join(out).count("left out: proposal.2.1 is not signed") == 2


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        (KEY, "", "is signed, and this host has no key"),
        ("", KEY, "is not signed, and this host has a key"),
        (KEY, KEY[::-1] + "x", "is not signed with the key of this host"),
    ],
)
def test_hosts_without_the_same_key_end_with_a_clear_line_and_wait_for_nothing(
    hosts: Hosts, first: str, second: str, why: str
) -> None:
    """Who leads is drawn; the other refuses."""
    for key in (first, second):
        hosts.start(**({"ROCSTEADY_JOB_KEY": key} if key else {}))

    codes, out = hosts.ended()

    assert (codes, trained(out)) == ([76, 76], []), out
    lines = [line for text in out for line in text.splitlines() if "Ending the job" in line]
    other = "is not signed, and" if "no key" in why else "is signed, and"
    assert any(why in line or (KEY[::-1] not in second and other in line) for line in lines), out
    assert len(lines) == 2


def test_a_key_from_a_file_holds_when_the_job_is_started_again(
    hosts: Hosts, tmp_path: Path
) -> None:
    file = tmp_path / "key"
    file.write_text(f"{KEY}\n")
    for _ in range(2):  # as a scheduler requeues it
        hosts.start(ROCSTEADY_JOB_KEY_FILE=str(file))
        hosts.start(ROCSTEADY_JOB_KEY_FILE=str(file))
        codes, out = hosts.ended()
        assert (codes, trained(out)) == ([0, 0], BOTH), out


@pytest.mark.parametrize("text", ["short", ""])
def test_a_key_that_is_none_is_refused_before_anything_starts(
    hosts: Hosts, tmp_path: Path, text: str
) -> None:
    file = tmp_path / "key"
    file.write_text(text)
    hosts.start(ROCSTEADY_JOB_KEY_FILE=str(file))
    hosts.start(ROCSTEADY_JOB_KEY_FILE=str(tmp_path / "absent"))

    codes, out = hosts.ended()

    assert codes == [76, 76], out
    assert "fewer than 16 characters" in out[0]
    assert "No such file" in out[1]
    assert not any("Traceback" in text for text in out)
