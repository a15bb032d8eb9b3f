"""Each way to start ranks x each fault, from outside: what was said, and what came of it.

    python tests/ranks/cells.py PYTHON FOLDER [--only LAUNCHER,...] [--fault FAULT,...]

PYTHON has torch, rocsteady-train, lightning and deepspeed; Slurm and Open MPI are those of the
machine. Prints a line a cell, and appends it to FOLDER/cells.jsonl; each cell has its folder there.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

sys.path += [str(Path(__file__).parents[1] / "victims"), str(Path(__file__).parents[2])]

from host_faults import Network, network
from rank_scripts import SCRIPTS, line_of
from slurm_cluster import Cluster, cluster

from tests.integrations.test_torchrun import free_port

WITHIN = 420.0  # seconds for a cell
ENDS_WITHIN = 90.0  # seconds after a SIGTERM
SETTLES_WITHIN = 10.0  # seconds for what is left to end
FAULTS = ("kill", "hang", "loader", "mismatch", "error", "exit", "sigterm", "none")
ROCSTEADY = [sys.executable, "-m", "rocsteady", "run", "--plain", "--"]
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "2"]
SRUN = ["srun", "--overcommit", "--kill-on-bad-exit=1"]
RETRY = 75


class Cells:
    def __init__(self, python: str, folder: Path) -> None:
        self.python, self.folder = python, folder
        self.torchrun = [python, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
        self.net: Network | None = None
        self.slurm: Cluster | None = None

    def command(self, launcher: str) -> list[str]:
        script = [self.python, "train.py"]
        torchrun = [*self.torchrun, "--max-restarts", "3", "train.py"]
        srun = [*(self.slurm.first if self.slurm else []), *SRUN]
        deepspeed = [str(Path(self.python).with_name("deepspeed")), "--num_gpus", "2"]
        return {
            "torchrun": torchrun,
            "run-torchrun": [*ROCSTEADY, *torchrun],
            "srun-1": [*srun, "-N1", "-n2", *ROCSTEADY, *script],
            "srun-2": [*srun, "-N2", "-n4", *ROCSTEADY, *script],
            "run-mpirun": [*ROCSTEADY, *MPIRUN, *script],
            "mpirun-run": [*MPIRUN, *ROCSTEADY, *script],
            "lightning": [*ROCSTEADY, self.python, "lit.py"],
            "deepspeed": [*ROCSTEADY, *deepspeed, "--master_port", str(free_port()), "train.py"],
        }[launcher]

    def environment(self, launcher: str, fault: str, folder: Path) -> dict[str, str]:
        two_hosts = launcher == "srun-2"
        address = self.net.address(1) if two_hosts and self.net else "127.0.0.1"
        slurm = self.slurm.environment if self.slurm and launcher.startswith("srun") else {}
        here = {
            **os.environ,
            **slurm,
            "PATH": f"{Path(self.python).parent}:{slurm.get('PATH', os.environ['PATH'])}",
            "FAULT": fault,
            "BAD": "3" if two_hosts else "1",
            "XDG_STATE_HOME": str(folder / "state"),
            "DS_ACCELERATOR": "cpu",
            "OMP_NUM_THREADS": "1",
        }
        if launcher in ("srun-1", "srun-2", "run-mpirun", "mpirun-run"):
            here |= {"MASTER_ADDR": address, "MASTER_PORT": str(free_port())}
        if two_hosts:
            here["GLOO_SOCKET_IFNAME"] = "eth0"
        if launcher == "torchrun":
            here["PET_RDZV_BACKEND"] = "rocsteady"
            here["ROCSTEADY_COMMAND"] = f"{sys.executable} -m rocsteady"
        return here


class Seen(NamedTuple):
    codes: list[int | None]  # of each start
    said: str
    begins: list[dict[int, int]]  # the step of each rank, of each generation
    left: list[str]
    seconds: float
    folder: Path


def one(cells: Cells, launcher: str, fault: str) -> Seen:
    """Start a job and wait for its end; start it again where its scheduler would."""
    folder = cells.folder / f"{launcher}-{fault}-{time.strftime('%H%M%S')}"
    folder.mkdir(parents=True)
    for name, text in SCRIPTS.items():
        (folder / name).write_text(text.strip("\n") + "\n")
    environment = cells.environment(launcher, fault, folder)
    command = cells.command(launcher)
    codes: list[int | None] = []
    began = time.monotonic()
    while len(codes) < 3:
        with (folder / "out").open("ab") as out:
            job = subprocess.Popen(
                command, cwd=folder, env=environment, stdout=out, stderr=out, process_group=0
            )
        if fault == "sigterm" and not codes:
            until(lambda: saved(folder) or job.poll() is not None, WITHIN)  # noqa: B023 - at once
            time.sleep(1.0)
            job.terminate()
            if not until(lambda: job.poll() is not None, ENDS_WITHIN):  # noqa: B023
                codes.append(None)
                break
        until(lambda: job.poll() is not None, WITHIN)  # noqa: B023
        codes.append(job.poll())
        stops_again = fault == "sigterm" and len(codes) == 1
        if not (codes[-1] == RETRY or stops_again):
            break
    until(lambda: not of_folder(folder), SETTLES_WITHIN)
    left = of_folder(folder)
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    said = (folder / "out").read_text(errors="replace")
    return Seen(codes, said, generations(said), [*left.values()], time.monotonic() - began, folder)


def until(reached: Callable[[], object], within: float) -> bool:
    deadline = time.monotonic() + within
    while not reached():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


def saved(folder: Path) -> bool:
    return any((folder / name).exists() for name in ("ckpt.pt", "ck/last.ckpt", "ckpt/latest"))


def of_folder(folder: Path) -> dict[str, str]:
    """Return the processes that work in this folder: the job's, and what watches it."""
    found = {}
    for each in Path("/proc").glob("[0-9]*"):
        try:
            if (each / "cwd").readlink() == folder:
                found[each.name] = (each / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
    return found


def generations(said: str) -> list[dict[int, int]]:
    found: list[dict[int, int]] = []
    for rank, first in re.findall(r"RANK (\d+) of \d+ begins at (\d+)", said):
        if not found or int(rank) in found[-1]:
            found.append({})
        found[-1][int(rank)] = int(first)
    return found


def problems(launcher: str, fault: str, seen: Seen) -> list[str]:
    """Tell what is wrong with a cell."""
    script = "lit.py" if launcher == "lightning" else "train.py"
    ranks = 4 if launcher == "srun-2" else 2
    bad, said = ranks - 1, lines_of_ours(seen.said)
    wrong = []

    def expect(condition: object, what: str) -> None:
        if not condition:
            wrong.append(what)

    at = re.escape(script)

    def line(comment: str) -> str:
        return rf"{at}:{line_of(script, comment)}\b"

    patterns = {
        "kill": [rf"SIGKILL.*\brank {bad}\b"],
        "hang": [rf"hung .*rank {bad}\b.*waiting for a lock at {line('stuck')}"],
        "loader": [
            rf"hung .*rank {bad}\b.*waiting for its data loader",
            rf"hung [^\n]*(?:\n [^\n]*)*({line('stuck')}|{line('in the loader')})",
        ],
        "mismatch": [rf"hung .*{line('of one rank')}"],
        "error": [
            rf"crashed .*ValueError: bad sample in shard 7 on rank {bad}\b.*{line('the error')}"
        ],
        "exit": [rf"crashed .*exit code 3\b.*\brank {bad}\b"],
        "sigterm": [],
        "none": [],
    }
    for pattern in patterns[fault]:
        expect(re.search(pattern, said), f"not said: {pattern}")
    if fault == "mismatch":
        named = [set(re.findall(rf"{at}:\d+", it)) for it in re.findall(r"hung .*", said)]
        expect(any(len(each) > 1 for each in named), "lines of one rank only")
        expect("deadlocked on a lock" not in said, "'deadlocked on a lock'")
        expect(not re.search(r"Fix \S+\.py:", said), "told to fix a line")
    if fault in ("hang", "loader", "mismatch"):
        inner_lines = {
            line_of(script, each)
            for each in ("stuck", "in the loader", "in forward", "of one rank")
        }
        fixes = {int(it) for it in re.findall(rf"Fix {at}:(\d+)", said)}
        expect(fixes <= inner_lines, f"told to fix {sorted(fixes - inner_lines)}")
    expect("another rank has exited" not in said, "'another rank has exited'")
    # A rank that has raised may take long to end on a busy machine: its wait is no false alarm.
    if fault in ("none", "sigterm"):
        expect(not re.search(r"\bhung  ", said), "said to hang")
    if fault in ("sigterm", "none"):
        expect("crashed " not in said, "said to crash")
    begins = seen.begins
    if fault == "error":
        expect(seen.codes[-1] not in (0, None) and len(begins) == 1, f"codes {seen.codes}")
    else:
        expect(seen.codes[-1] == 0, f"codes {seen.codes}")
        done = len(re.findall(r"RANK \d+ is done", seen.said))
        expect(done == ranks, f"{done} of {ranks} ranks done")
        steps = {"none": [{0}], "sigterm": [{0}, {20, 40, 60}]}.get(fault, [{0}, {40}])
        found = [set(each.values()) for each in begins]
        right = len(found) == len(steps) and all(
            a <= b and len(a) == 1 for a, b in zip(found, steps, strict=True)
        )
        expect(right and all(len(each) == ranks for each in begins), f"begins {begins}")
    expect(not seen.left, f"left: {seen.left}")
    return wrong


def lines_of_ours(said: str) -> str:
    """Return what rocsteady said, without the scripts' output."""
    ours = re.compile(r"^(?:\x1b\[[\d;]*m)*(?:\[[\w-]+\]: ?)?rocsteady: |^           ?\S")
    return "\n".join(line for line in said.splitlines() if ours.search(line))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("python")
    parser.add_argument("folder", type=Path)
    launchers = "torchrun,run-torchrun,srun-1,srun-2,run-mpirun,mpirun-run,lightning,deepspeed"
    parser.add_argument("--only", default=launchers)
    parser.add_argument("--fault", default=",".join(FAULTS[:-1]))
    parser.add_argument("--again", action="store_true", help="judge what was kept once more")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # nothing is left of the cluster
    folder = asked.folder.resolve()
    if asked.again:
        judge_again(folder)
        return
    cells = Cells(asked.python, folder)
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as left:
        chosen = asked.only.split(",")
        if any(each.startswith("srun") for each in chosen):
            cells.net = left.enter_context(network(2))
            place = folder / f"slurm-{os.getpid()}"
            place.mkdir()
            cells.slurm = left.enter_context(cluster(place, cells.net))
        for launcher in chosen:
            for fault in asked.fault.split(","):
                seen = one(cells, launcher, fault)
                record(folder, launcher, fault, seen)


def record(folder: Path, launcher: str, fault: str, seen: Seen) -> None:
    wrong = problems(launcher, fault, seen)
    kept: dict[str, Any] = {
        "launcher": launcher,
        "fault": fault,
        "wrong": wrong,
        "codes": seen.codes,
        "begins": seen.begins,
        "left": seen.left,
        "seconds": round(seen.seconds),
        "load": os.getloadavg()[0],
        "folder": seen.folder.name,
    }
    with (folder / "cells.jsonl").open("a") as out:
        out.write(json.dumps(kept) + "\n")
    show(kept, seen.said)


def show(kept: dict[str, Any], said: str) -> None:
    print(
        f"{'wrong' if kept['wrong'] else 'right'} {kept['launcher']:13} {kept['fault']:9}"
        f" {kept['seconds']:4} s, load {kept['load']:.1f}, codes {kept['codes']},"
        f" begins {kept['begins']}, left {kept['left']}"
    )
    for each in kept["wrong"]:
        print(f"      wrong: {each}")
    for line in told(said):
        print(f"      {line}")
    sys.stdout.flush()


def told(said: str) -> Sequence[str]:
    return re.findall(
        r"(?m)^.*rocsteady: +(?:hung|crashed|stopped|slow|resum|failed|gave).*$", said
    )


def judge_again(folder: Path) -> None:
    newest: dict[tuple[str, str], dict[str, Any]] = {}
    for line in (folder / "cells.jsonl").read_text().splitlines():
        kept = json.loads(line)
        newest[kept["launcher"], kept["fault"]] = kept
    for kept in newest.values():
        here = folder / kept["folder"]
        said = (here / "out").read_text(errors="replace")
        seen = Seen(kept["codes"], said, generations(said), kept["left"], kept["seconds"], here)
        kept["wrong"] = problems(kept["launcher"], kept["fault"], seen)
        show(kept, said)
    print(f"{sum(not kept['wrong'] for kept in newest.values())} of {len(newest)} right")


if __name__ == "__main__":
    main()
