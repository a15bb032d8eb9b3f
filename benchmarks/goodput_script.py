"""The training that ``goodput.py`` disturbs: steps of equal length, and faults that occur once.

    python goodput_script.py plain|loop|nvrx STEPS SECONDS SCHEDULE [--resume latest]

SCHEDULE is a JSON object: the fault before each of these steps. The folder that this runs in keeps
the checkpoints, which faults have occurred (``fault-N``), and each start (``starts``).
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch

CHECKPOINT_EVERY = 200  # steps
PAUSE = 12.0  # seconds
WIDTH, BATCH = 64, 16


class Faults:
    """What happens before which step, once in all processes together."""

    def __init__(self, text: str) -> None:
        self._kinds = {int(step): kind for step, kind in json.loads(text).items()}

    def before(self, step: int) -> None:
        """Let the fault of this step occur, unless it has."""
        mark = Path(f"fault-{step}")
        if step not in self._kinds or mark.exists():
            return
        mark.touch()
        if self._kinds[step] == "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self._kinds[step] == "deadlock":
            lock = threading.Lock()
            lock.acquire()
            lock.acquire()
        else:
            time.sleep(PAUSE)


def train_plain(steps: int, seconds: float, faults: Faults, client: Any) -> None:  # noqa: ANN401
    """Train as many scripts do: torch.save now and then, and resume from the newest."""
    model = torch.nn.Linear(WIDTH, WIDTH)
    optimizer = torch.optim.AdamW(model.parameters())
    done = resume(model, optimizer, client)
    for step in range(done + 1, steps + 1):
        began = time.monotonic()
        faults.before(step)
        optimizer.zero_grad()
        model(torch.randn(BATCH, WIDTH)).square().mean().backward()
        optimizer.step()
        if client is not None:
            beat(client, step - done)
        if step % CHECKPOINT_EVERY == 0:
            save(step, model, optimizer, client)
        time.sleep(max(0.0, seconds - (time.monotonic() - began)))
    torch.save(model.state_dict(), "model.pt")


def save(step: int, model: Any, optimizer: Any, client: Any) -> None:  # noqa: ANN401
    """Write a checkpoint beside its name, and rename it."""
    state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    if client is not None:
        state["client"] = client.state_dict()
    torch.save(state, "unfinished")
    Path("unfinished").replace(f"checkpoints/step-{step:06}.pt")


def resume(model: Any, optimizer: Any, client: Any) -> int:  # noqa: ANN401
    """Restore the checkpoint that the arguments name, or the newest, and return its step."""
    found = sorted(Path("checkpoints").glob("step-*.pt"))
    named = sys.argv[sys.argv.index("--resume") + 1] if "--resume" in sys.argv else ""
    if named != "latest":
        found = [Path(named)] if named else []
    if client is not None and found:
        client.load_state_dict(torch.load(found[-1])["client"])
    if client is not None:
        client.init_workload_monitoring()
    if not found:
        return 0
    state = torch.load(found[-1])
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"])


def beat(client: Any, count: int) -> None:  # noqa: ANN401 - of nvidia-resiliency-ext
    """Send a heartbeat, and let the timeouts be learned once there are some."""
    client.send_heartbeat()
    if count == CHECKPOINT_EVERY - 1:
        client.calculate_and_set_hb_timeouts()


def train_loop(steps: int, seconds: float, faults: Faults) -> None:
    """Train with rocsteady_train.Loop and its defaults."""
    model = torch.nn.Linear(WIDTH, WIDTH)
    optimizer = torch.optim.AdamW(model.parameters())
    data = torch.utils.data.TensorDataset(torch.randn(steps * BATCH, WIDTH))
    loader = torch.utils.data.DataLoader(data, batch_size=BATCH)
    import rocsteady_train  # noqa: PLC0415 - the other kinds run without it

    loop = rocsteady_train.Loop(model=model, optimizer=optimizer, loader=loader, epochs=1)
    began = time.monotonic()
    for batch in loop:
        faults.before(loop.steps + 1)
        loop.step(batch, lambda part: model(part[0]).square().mean())
        time.sleep(max(0.0, seconds - (time.monotonic() - began)))
        began = time.monotonic()
    torch.save(model.state_dict(), "model.pt")


def main() -> None:
    """Train as the arguments say."""
    kind, steps, seconds, schedule = sys.argv[1:5]
    Path("checkpoints").mkdir(exist_ok=True)
    with Path("starts").open("a") as stream:
        stream.write("start\n")
    torch.set_num_threads(1)
    faults = Faults(schedule)
    if kind == "loop":
        train_loop(int(steps), float(seconds), faults)
        return
    client = None
    if kind == "nvrx":
        ft = importlib.import_module("nvidia_resiliency_ext.fault_tolerance")

        torch.distributed.init_process_group("gloo")  # it learns its timeouts over one
        client = ft.RankMonitorClient()
    train_plain(int(steps), float(seconds), faults, client)
    if client is not None:
        client.shutdown_workload_monitoring()


if __name__ == "__main__":
    main()
