"""Two ranks, a killed one and a deadlocked one, under rocsteady and under its peers.

    python benchmarks/peers.py TORCH_PYTHON NVRX_PYTHON FOLDER 3

TORCH_PYTHON is an interpreter with torch and rocsteady, NVRX_PYTHON one with torch and
nvidia-resiliency-ext. Prints the seconds from each fault to the first step after it.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "victims"))
from rank_faults import RANKS, SCRIPT, Torchrun, inject

WAIT = 90.0  # seconds, after which a fault counts as not noticed
SETTLE = 2.0  # seconds of steps before the fault, so that there is a checkpoint
STEPS = "10000"
RDZV = ("--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0")
TIMEOUTS = (
    "--ft-param-initial_rank_heartbeat_timeout=60",
    "--ft-param-rank_heartbeat_timeout=10",
)
# What nvidia-resiliency-ext's guide has a script do: 5 lines.
CHANGES = {
    "import torch.distributed as dist\n": (
        "import torch.distributed as dist\nimport nvidia_resiliency_ext.fault_tolerance as ft\n"
    ),
    '    dist.init_process_group("gloo")\n': (
        '    dist.init_process_group("gloo")\n'
        "    client = ft.RankMonitorClient()\n"
        "    client.init_workload_monitoring()\n"
    ),
    "        step += 1\n": "        step += 1\n        client.send_heartbeat()\n",
    "    dist.destroy_process_group()\n": (
        "    client.shutdown_workload_monitoring()\n    dist.destroy_process_group()\n"
    ),
}


class Peer(Torchrun):
    """Two ranks below any launcher."""

    def __init__(self, folder: Path, command: list[str], **variables: str) -> None:
        self.folder = self.reports = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.log = (folder / "log").open("wb")
        path = f"{Path(command[0]).parent}:{os.environ['PATH']}"
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, "PATH": path, **variables},
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
            start_new_session=True,
        )

    def until(self, reached: Callable[[], bool], within: float = WAIT) -> bool:
        """Wait, but not as long as for one's own."""
        return super().until(reached, within)


def rocsteady(python: str, folder: Path) -> Peer:
    """Start stock torchrun with one variable set, and an unmodified script."""
    launch = [python, "-m", "torch.distributed.run", "--nproc-per-node", str(RANKS)]
    options = ["--max-restarts", "100", str(SCRIPT), STEPS]
    return Peer(folder, [*launch, *options], PET_RDZV_BACKEND="rocsteady")


def nvrx(python: str, folder: Path, script: Path = SCRIPT) -> Peer:
    """Start ft_launcher with timeouts of 10 s between steps."""
    launcher = str(Path(python).with_name("ft_launcher"))
    launch = [launcher, "--nproc-per-node", str(RANKS), "--max-restarts", "100", *RDZV]
    store = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}  # or half of the restarts fail
    return Peer(folder, [*launch, *TIMEOUTS, str(script), STEPS], **store)


def nvrx_with_heartbeats(python: str, folder: Path) -> Peer:
    """Start it with a script that was changed as its guide says."""
    text = SCRIPT.read_text(encoding="utf-8")
    for before, after in CHANGES.items():
        start, _, rest = text.partition(before)
        text = start + after + rest
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "training_with_heartbeats.py"
    script.write_text(text, encoding="utf-8")
    return nvrx(python, folder, script)


def once(start: Callable[[Path], Peer], folder: Path, fault: str) -> float | None:
    """Bring one fault about; return the seconds to the next first step, None if there is none."""
    peer = start(folder)
    try:
        if not peer.until(lambda: peer.generations() == 1):
            raise SystemExit(peer.said()[-3000:])
        time.sleep(SETTLE)
        found = inject(peer, fault, 1)
        return found.seconds if peer.generations() > 1 else None
    finally:
        peer.close()


def main() -> None:
    """Bring faults about, in turns, and print what came of each."""
    ours, theirs, folder, repeats = sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])
    starts: dict[str, Callable[[Path], Peer]] = {
        "rocsteady": lambda place: rocsteady(ours, place),
        "nvidia-resiliency-ext, changed script": lambda place: nvrx_with_heartbeats(theirs, place),
        "nvidia-resiliency-ext": lambda place: nvrx(theirs, place),
    }
    for fault in ("kill", "backward"):
        seconds: dict[str, list[float | None]] = {name: [] for name in starts}
        for repeat in range(repeats):
            for number, (name, start) in enumerate(starts.items()):
                if fault != "kill" and seconds[name][-1:] == [None]:
                    continue  # it was not noticed
                place = folder / f"{fault}-{repeat}-{number}"
                seconds[name].append(once(start, place, fault))
                print(f"{fault:9} {name:38} {seconds[name][-1]}", flush=True)
        for name, each in seconds.items():
            clean = [value for value in each if value is not None]
            told = f"median {statistics.median(clean):.1f} s" if clean else "not noticed"
            print(f"{fault:9} {name:38} {len(clean)} of {len(each)}, {told}", flush=True)


if __name__ == "__main__":
    main()
