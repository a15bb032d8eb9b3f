"""A real Slurm in a folder: munged, slurmctld and slurmd on loopback.

With hosts made of network namespaces, each has a slurmd and a name of its own.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from host_faults import Network

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol", "scancel", "sinfo")
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
IN_NAMESPACE = ["ip", "netns", "exec"]
NAMED = ["unshare", "--uts", "sh", "-c", 'hostname "$0"; exec "$@"']
WITHIN = 120.0  # seconds, on a machine that has other things to do
CONFIGURATION = """\
ClusterName=loopback
SlurmctldHost={host}({address})
SlurmctldPort={controller}
SlurmdPort={node}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={spool}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=2,requeue_delay=1
GresTypes=gpu
ReturnToService=2
KillWait=30
OverTimeLimit=0
{nodes}
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=60
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=9
"""
NODE = "NodeName={name} NodeAddr={address} CPUs=1 Gres=gpu:1 State=UNKNOWN"
CGROUPS = "CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n"


def missing() -> list[str]:
    return [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]


class Cluster:
    def __init__(self, folder: Path, net: Network | None = None) -> None:
        self.folder = folder
        # By name: the address of each host, and what a command on it begins with.
        self.hosts: dict[str, tuple[str, list[str]]] = {socket.gethostname(): ("127.0.0.1", [])}
        if net is not None:
            self.hosts = {
                f"host{number}": (
                    net.address(number),
                    [*IN_NAMESPACE, net.name(number), *NAMED, f"host{number}"],
                )
                for number in net.hosts
            }
        self.environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("SLURM_")},
            "PATH": f"{folder / 'bin'}:{Path(sys.executable).parent}:{PATH}",
            "SLURM_CONF": str(folder / "slurm.conf"),
            "XDG_STATE_HOME": str(folder / "home"),
            "XDG_DATA_HOME": str(folder / "home"),
        }

    @property
    def first(self) -> list[str]:
        """Return what a command on the first host begins with."""
        return next(iter(self.hosts.values()))[1]

    def ask(self, *command: str, where: Path | None = None) -> str:
        done = subprocess.run(
            [*self.first, *command],
            cwd=where or self.folder,
            env=self.environment,
            check=False,
            capture_output=True,
            text=True,
            timeout=WITHIN,
        )
        return done.stdout + done.stderr

    def submit(self, file: Path, *options: str) -> int:
        """Submit a batch file from its folder; return the number of the job."""
        said = self.ask("sbatch", *options, file.name, where=file.parent)
        found = re.fullmatch(r"Submitted batch job (\d+)\s*", said)
        assert found, said
        return int(found[1])

    def job(self, number: int) -> dict[str, str]:
        return dict(re.findall(r"(\w+)=(\S*)", self.ask("scontrol", "show", "job", str(number))))

    def until(self, number: int, *states: str, restarts: int = 0) -> dict[str, str]:
        """Wait for a job to be in one of these states, after so many requeues."""
        deadline = time.monotonic() + 3 * WITHIN
        while True:
            job = self.job(number)
            if job.get("JobState") in states and int(job.get("Restarts", 0)) >= restarts:
                return job
            if time.monotonic() > deadline:
                raise AssertionError((job, self.log()))
            time.sleep(0.5)

    def until_idle(self) -> None:
        """Wait for the host to have nothing left to do."""
        deadline = time.monotonic() + WITHIN
        while self.ask("sinfo", "--noheader", "--format=%T").split() != ["idle"]:
            if time.monotonic() > deadline:
                raise AssertionError((self.ask("sinfo"), self._outputs(), self.log()))
            time.sleep(0.5)

    def _outputs(self) -> str:
        return "".join(path.read_text(errors="replace") for path in self.folder.glob("*.out"))

    def log(self) -> str:
        return "".join(
            (self.folder / f"{name}.log").read_text(errors="replace")[-3000:]
            for name in ("slurmctld", *(f"slurmd-{host}" for host in self.hosts))
            if (self.folder / f"{name}.log").exists()
        )


@contextlib.contextmanager
def names(net: Network | None) -> Iterator[None]:
    """Have hosts found by name in each namespace; ``ip netns exec`` puts these files over /etc."""
    numbers = net.hosts if net is not None else ()
    folders = [Path("/etc/netns", net.name(number)) for number in numbers] if net else []
    text = "".join(f"{net.address(number)} host{number}\n" for number in numbers) if net else ""
    try:
        for folder in folders:
            folder.mkdir(parents=True)
            (folder / "hosts").write_text(f"127.0.0.1 localhost\n{text}")
        yield
    finally:
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def cluster(folder: Path, net: Network | None = None) -> Iterator[Cluster]:
    """Start the daemons; nothing of them is left."""
    made = Cluster(folder, net)
    spool = tempfile.mkdtemp(prefix="slurmd-", dir="/tmp")  # names of sockets must be short
    _configure(made, spool)
    munge = [f"--{name}={folder}/munge.{name.split('-')[0]}" for name in ("socket", "pid-file")]
    munge += [f"--key-file={folder}/munge.key", f"--log-file={folder}/munge.log"]
    munge += [f"--seed-file={folder}/munge.seed"]
    daemons: list[subprocess.Popen[bytes]] = []
    try:
        for where, command in (
            (made.first, ["munged", "--foreground", "--force", *munge]),
            (made.first, ["slurmctld", "-D"]),
            *((where, ["slurmd", "-D", "-N", name]) for name, (_, where) in made.hosts.items()),
        ):
            with (folder / f"{command[0]}.out").open("ab") as out:
                program = shutil.which(command[0], path=PATH) or command[0]
                words = [*where, program, *command[1:]]
                daemons.append(
                    subprocess.Popen(words, env=made.environment, stdout=out, stderr=out)
                )
            time.sleep(1.0)
        made.until_idle()
        yield made
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
            try:
                daemon.wait(20.0)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        shutil.rmtree(spool, ignore_errors=True)


def _configure(made: Cluster, spool: str) -> None:
    folder = made.folder
    for name in ("state", "home", "bin"):
        (folder / name).mkdir()
    controller, node = _free_ports()
    text = CONFIGURATION.format(
        host=next(iter(made.hosts)),
        address=next(iter(made.hosts.values()))[0],
        nodes="\n".join(
            NODE.format(name=name, address=address) for name, (address, _) in made.hosts.items()
        ),
        user=pwd.getpwuid(os.getuid()).pw_name,
        folder=folder,
        spool=spool,
        controller=controller,
        node=node,
    )
    (folder / "slurm.conf").write_text(text)
    (folder / "cgroup.conf").write_text(CGROUPS)
    (folder / "gres.conf").write_text("Name=gpu File=/dev/zero\n")
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(64))
    key.chmod(0o400)
    rocsteady = folder / "bin" / "rocsteady"
    rocsteady.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m rocsteady "$@"\n')
    rocsteady.chmod(0o755)


def _free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        return one.getsockname()[1], other.getsockname()[1]
