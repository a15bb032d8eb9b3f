"""Hosts made of network namespaces, on each of them a torchrun with two ranks of one job."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

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
        """Take a host off the network."""
        _ip("-n", self._hub, "link", "set", f"to{host}", "down")

    def join(self, host: int) -> None:
        """Put it back."""
        _ip("-n", self._hub, "link", "set", f"to{host}", "up")

    def close(self) -> None:
        for host in (*self.hosts, 0):
            _ip("netns", "delete", self.name(host))


@contextmanager
def network(hosts: int) -> Iterator[Network]:
    """Make namespaces, and remove them."""
    made = Network(hosts)
    try:
        yield made
    finally:
        made.close()


class Job:
    """One job over all hosts of a network; each host has a folder of its own and a shared one."""

    def __init__(
        self, python: str, net: Network, folder: Path, training: tuple[Path, int], meet_at: int
    ) -> None:
        self._python, self._net, self._meet_at = python, net, meet_at
        self._training = [str(training[0]), str(training[1]), str(folder / "shared")]
        self.folder = folder
        self.shared = folder / "shared"
        self.shared.mkdir(parents=True)
        self.agents: dict[int, subprocess.Popen[bytes]] = {}
        for host in net.hosts:
            self.start(host)

    def start(self, host: int) -> None:
        """Start the torchrun of a host."""
        here = self.folder / f"host-{host}"
        here.mkdir(exist_ok=True)
        variables = {
            "PET_RDZV_BACKEND": "rocsteady",
            "GLOO_SOCKET_IFNAME": "eth0",
            "HOME": str(here),
            "XDG_STATE_HOME": str(here / "state"),
            "PATH": f"{Path(self._python).parent}:{os.environ['PATH']}",
        }
        is_host = "true" if host == self._meet_at else "false"
        options = {
            "nnodes": len(self._net.hosts),
            "nproc-per-node": RANKS,
            "max-restarts": 1000,
            "log-dir": "logs",
            "rdzv-id": "job",
            "rdzv-endpoint": f"{self._net.address(self._meet_at)}:{PORT}",
            "rdzv-conf": f"is_host={is_host}",
            "local-addr": self._net.address(host),
        }
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        launch = (self._python, "-m", "torch.distributed.run")
        with (here / "log").open("ab") as log:
            self.agents[host] = subprocess.Popen(
                ["ip", "netns", "exec", self._net.name(host), *launch, *words, *self._training],
                cwd=here,
                env={**os.environ, **variables},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def told(self, what: str = "") -> list[dict[str, Any]]:
        """Return what ranks have told."""
        try:
            lines = (self.shared / "told").read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []
        all_of_it = [json.loads(line) for line in lines if line.endswith("}")]
        return [each for each in all_of_it if what in ("", each["what"])]

    def generations(self) -> int:
        """Return how many generations made a first step on every rank."""
        return len(self.told("first step")) // (RANKS * len(self._net.hosts))

    def pid(self, rank: int) -> int:
        """Return the process of a rank, of the newest generation."""
        return next(int(t["pid"]) for t in self.told("first step")[::-1] if t["rank"] == rank)

    def ranks_of(self, host: int) -> list[int]:
        """Return the ranks that a host has now."""
        ranks = range(RANKS * len(self._net.hosts))
        return [rank for rank in ranks if _parent(self.pid(rank)) == self.agents[host].pid]

    def until(self, reached: Callable[[], bool], within: float = WITHIN) -> bool:
        """Wait for something."""
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
        """Return what a host has printed."""
        return (self.folder / f"host-{host}" / "log").read_text(errors="replace")

    def all_said(self) -> str:
        """Return what all hosts have printed, for a test that failed."""
        return "\n".join(f"== host {host}\n{self.said(host)[-6000:]}" for host in self.agents)

    def kill(self, host: int) -> None:
        """End a host: its agent, its watcher and its ranks, at once."""
        agent = self.agents[host].pid
        for pid in (*_below(agent), agent):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.agents[host].wait()

    def close(self) -> None:
        """End what is left."""
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
