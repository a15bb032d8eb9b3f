"""Hosts made of network namespaces, on each of them a torchrun with two ranks of one job."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from rank_faults import SCRIPT, Reports

RANKS = 2  # of each host
WITHIN = 600.0  # seconds, on a machine that has other things to do
NETWORK = "10.77.{}.{}"
PORT = 29400


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def why_not() -> str:
    """Tell why namespaces cannot be made here; "" if they can."""
    try:
        _ip("netns", "add", "rocsteady-try")
        _ip("netns", "delete", "rocsteady-try")
    except FileNotFoundError:
        return "there is no ip command"
    except subprocess.CalledProcessError as error:
        return f"network namespaces are not permitted: {error.stderr.decode().strip()}"
    return ""


class Network:
    """Namespaces on one bridge, numbered from 1; the bridge is in a namespace of its own."""

    def __init__(self, hosts: int) -> None:
        self.hosts, self._net = range(1, hosts + 1), os.getpid() % 250
        self._hub = self.name(0)
        _ip("netns", "add", self._hub)
        _ip("-n", self._hub, "link", "add", "bridge", "type", "bridge")
        _ip("-n", self._hub, "link", "set", "bridge", "up")
        for host in self.hosts:
            name = self.name(host)
            _ip("netns", "add", name)
            peer = ("type", "veth", "peer", "name", "eth0", "netns", name)
            _ip("-n", self._hub, "link", "add", f"to{host}", *peer)
            _ip("-n", self._hub, "link", "set", f"to{host}", "master", "bridge", "up")
            _ip("-n", name, "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
            for link in ("eth0", "lo"):
                _ip("-n", name, "link", "set", link, "up")

    def name(self, host: int) -> str:
        return f"rocsteady-{os.getpid()}-{host}"

    def address(self, host: int) -> str:
        return NETWORK.format(self._net, host)

    def cut(self, host: int) -> None:
        _ip("-n", self._hub, "link", "set", f"to{host}", "down")

    def join(self, host: int) -> None:
        _ip("-n", self._hub, "link", "set", f"to{host}", "up")

    def lose(self, percent: int) -> None:
        """Lose so many of the packets between hosts from now on, at random."""
        hub = ("netns", "exec", self._hub, "nft")
        _ip(*hub, "add table bridge loss")
        _ip(*hub, "add chain bridge loss every { type filter hook forward priority 0; }")
        _ip(*hub, f"add rule bridge loss every numgen random mod 100 < {percent} counter drop")

    def lost(self) -> int:
        """Return how many packets were lost in this way."""
        told = subprocess.run(
            ["ip", "netns", "exec", self._hub, "nft", "-j", "list", "table", "bridge", "loss"],
            check=True,
            capture_output=True,
        )
        rules = [it["rule"] for it in json.loads(told.stdout)["nftables"] if "rule" in it]
        return next(int(it["counter"]["packets"]) for it in rules[0]["expr"] if "counter" in it)

    def close(self) -> None:
        for host in (*self.hosts, 0):
            _ip("netns", "delete", self.name(host))


@contextmanager
def network(hosts: int) -> Iterator[Network]:
    made = Network(hosts)
    try:
        yield made
    finally:
        made.close()


def skewed(folder: Path, seconds: int) -> dict[str, str]:
    """Return the variables with which the clock of processes is off."""
    return {
        "LD_PRELOAD": _library(folder, "skewed_clock.c"),
        "ROCSTEADY_TEST_SKEW": str(seconds),
    }


def _library(folder: Path, source: str) -> str:
    library = folder / Path(source).with_suffix(".so")
    path = str(Path(__file__).with_name(source))
    command = ["gcc", "-O1", "-shared", "-fPIC", "-pthread", "-o", str(library), path, "-ldl"]
    subprocess.run(command, check=True, capture_output=True)
    return str(library)


def without_ptrace(folder: Path, *, calls: bool = False) -> dict[str, str]:
    """Return the variables with which a host's watcher cannot read stacks.

    Nor, without ``calls``, system calls and memory. The rest of /proc stays readable, as Yama
    has it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    refused = folder / "py-spy"
    refused.write_text("#!/bin/sh\necho 'Error: Permission denied (os error 13)' >&2\nexit 1\n")
    refused.chmod(0o755)
    theirs = Path(sys.executable).with_name("py-spy")
    preload = "" if calls else f"LD_PRELOAD={_library(folder, 'no_ptrace.c')}"
    watcher = f'exec env {preload} {sys.executable} -m rocsteady "$@"'
    inner = f"mount --bind {refused} {theirs} && {watcher}"
    return {"ROCSTEADY_COMMAND": shlex.join(["unshare", "--mount", "sh", "-c", inner, "sh"])}


class Setting(NamedTuple):
    """What a job runs, and how its hosts meet."""

    steps: int
    script: Path = SCRIPT
    meet_at: int = 1  # the host of the store
    variables: dict[int, dict[str, str]] | None = None  # more of them, on some hosts
    spares: int = 0  # hosts more than the job needs


class Job(Reports):
    """One job over all hosts of a network; each host has a folder of its own and a shared one."""

    def __init__(self, python: str, net: Network, folder: Path, setting: Setting) -> None:
        self._python, self.net, self.setting = python, net, setting
        self.folder = folder
        self.shared = self.reports = folder / "shared"
        self._needed = len(net.hosts) - setting.spares
        self.ranks = RANKS * self._needed
        self.shared.mkdir(parents=True)
        self._training = [str(setting.script), str(setting.steps), str(self.shared)]
        self.agents: dict[int, subprocess.Popen[bytes]] = {}
        self._began = time.monotonic()
        for host in net.hosts:
            self.start(host)

    def start(self, host: int) -> None:
        here = self.folder / f"host-{host}"
        here.mkdir(exist_ok=True)
        variables = {
            "PET_RDZV_BACKEND": "rocsteady",
            "ROCSTEADY_COMMAND": f"{sys.executable} -m rocsteady",
            "GLOO_SOCKET_IFNAME": "eth0",
            "HOME": str(here),
            "XDG_STATE_HOME": str(here / "state"),
            "PATH": f"{Path(self._python).parent}:{os.environ['PATH']}",
            **(self.setting.variables or {}).get(host, {}),
        }
        meet_at = self.setting.meet_at
        is_host = str(host == meet_at).lower()
        options = {
            "nnodes": self._needed,
            "nproc-per-node": RANKS,
            "max-restarts": 1000,
            "log-dir": "logs",
            "rdzv-id": "job",
            "rdzv-endpoint": f"{self.net.address(meet_at)}:{PORT}",
            "rdzv-conf": f"is_host={is_host}",
            "local-addr": self.net.address(host),
        }
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        launch = (self._python, "-m", "torch.distributed.run")
        with (here / "log").open("ab") as log:
            self.agents[host] = subprocess.Popen(
                ["ip", "netns", "exec", self.net.name(host), *launch, *words, *self._training],
                cwd=here,
                env={**os.environ, **variables},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def ranks_of(self, host: int) -> list[int]:
        ranks = range(self.ranks)
        return [rank for rank in ranks if _parent(self.pid(rank)) == self.agents[host].pid]

    def watcher(self, host: int) -> int:
        """Return the process that watches the ranks of a host."""
        ranks = {self.pid(rank) for rank in range(self.ranks)}
        text = Path(
            f"/proc/{self.agents[host].pid}/task/{self.agents[host].pid}/children"
        ).read_text()
        return next(pid for pid in map(int, text.split()) if pid not in ranks)

    def until(self, reached: Callable[[], bool], within: float = WITHIN) -> bool:
        deadline = time.monotonic() + within
        while not reached():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.1)
        return True

    def codes(self, within: float = WITHIN) -> dict[int, int | None]:
        """Wait for the end of every torchrun; return how they ended, None for one that did not."""
        self.until(lambda: all(each.poll() is not None for each in self.agents.values()), within)
        return {host: each.poll() for host, each in self.agents.items()}

    def said(self, host: int) -> str:
        return (self.folder / f"host-{host}" / "log").read_text(errors="replace")

    def all_said(self) -> str:
        """Return what all hosts have printed, for a test that failed."""
        return "\n".join(f"== host {host}\n{self.said(host)[-6000:]}" for host in self.agents)

    def recorded(self, host: int, what: str = "incidents") -> list[dict[str, Any]]:
        """Return what the journal of a host has of its last run, oldest first."""
        here = self.folder / f"host-{host}"
        told = subprocess.run(
            [sys.executable, "-m", "rocsteady", "report", "--json"],
            cwd=here,
            env={**os.environ, "HOME": str(here), "XDG_STATE_HOME": str(here / "state")},
            check=True,
            capture_output=True,
        )
        found: list[dict[str, Any]] = json.loads(told.stdout)[what]
        return found

    def kill(self, host: int) -> None:
        """End a host: its agent, its watcher and its ranks, at once."""
        agent = self.agents[host].pid
        for pid in (*_below(agent), agent):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.agents[host].wait()

    def signal(self, host: int, number: int) -> None:
        agent = self.agents[host].pid
        for pid in (agent, *_below(agent)):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def summary(self) -> str:
        codes = {host: agent.poll() for host, agent in self.agents.items()}
        at = [each["at"] for each in self.told() if each["rank"] == 0 and "at" in each]
        still = max((b - a for a, b in pairwise(at)), default=0.0)
        took = time.monotonic() - self._began
        return (
            f"{took:.0f} s, generations {self.generations()},"
            f" longest time without a sign of rank 0 {still:.1f} s, exit codes {codes}"
        )

    def close(self) -> None:
        for host, agent in self.agents.items():
            if agent.poll() is None:
                self.kill(host)


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])
    except OSError:
        return 0


def _below(pid: int) -> list[int]:
    try:
        told = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    return [each for child in map(int, told.split()) for each in (child, *_below(child))]
