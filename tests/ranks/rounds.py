"""Kills a rank again and again under one task for each rank, always at the same port.

    python tests/ranks/rounds.py PYTHON FOLDER 100

PYTHON has torch. The tasks are started as mpirun starts them. Prints how many generations began at
the step that was saved, with all ranks of one generation.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

sys.path += [str(Path(__file__).parents[1] / "victims"), str(Path(__file__).parents[2])]

from tests.integrations.test_torchrun import free_port

RANKS = 2
SCRIPT = """
import json, os, random, signal, sys, time
import torch
import torch.distributed as dist

rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
rounds, port = int(sys.argv[1]), sys.argv[2]
dist.init_process_group(
    "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2
)
net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
saved = {"step": 0, "generation": 0}
if os.path.exists("ckpt.pt"):
    saved = torch.load("ckpt.pt")
    net.load_state_dict(saved["net"])
    optimizer.load_state_dict(saved["optimizer"])
step, generation = saved["step"], os.environ["ROCSTEADY_RUN"]
generations = [None, None]
dist.all_gather_object(generations, (generation, step))
with open("told", "a") as told:
    told.write(json.dumps({"rank": rank, "step": step, "generations": generations}) + "\\n")
number = saved["generation"]
while step < 10 * (rounds + 1):
    optimizer.zero_grad()
    net(torch.randn(8, 4)).pow(2).mean().backward()
    for each in net.parameters():
        dist.all_reduce(each.grad)
    optimizer.step()
    step += 1
    time.sleep(0.02)
    if step % 10 == 0:
        if rank == 0:
            state = {"net": net.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save({**state, "step": step, "generation": number + 1}, "ckpt.tmp")
            os.replace("ckpt.tmp", "ckpt.pt")
        dist.barrier()
        if step == 10 * (number + 1) and number < rounds:
            dies_after = random.Random(number).randrange(1, 9) + step
    if number < rounds and step > 10 * (number + 1) and step == dies_after:
        if rank == number % 2:
            os.kill(os.getpid(), signal.SIGKILL)
dist.destroy_process_group()
"""


def main() -> None:
    python, folder, rounds = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    folder.mkdir(parents=True)
    (folder / "train.py").write_text(SCRIPT)
    port, began = str(free_port()), time.monotonic()
    command = [sys.executable, "-m", "rocsteady", "run", "--plain", "--"]
    tasks = []
    for rank in range(RANKS):
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "XDG_STATE_HOME": str(folder / "state"),
            "PMIX_NAMESPACE": str(folder),
            "OMPI_COMM_WORLD_RANK": str(rank),
            "OMPI_COMM_WORLD_SIZE": str(RANKS),
            "OMPI_COMM_WORLD_LOCAL_RANK": str(rank),
            "OMPI_COMM_WORLD_LOCAL_SIZE": str(RANKS),
        }
        with (folder / f"out-{rank}").open("wb") as out:
            tasks.append(
                subprocess.Popen(
                    [*command, python, "train.py", str(rounds), port],
                    cwd=folder,
                    env=environment,
                    stdout=out,
                    stderr=out,
                )
            )
    codes = [task.wait() for task in tasks]
    told = [json.loads(line) for line in (folder / "told").read_text().splitlines()]
    right = 0
    generations = len(told) // RANKS
    for number in range(generations):
        ranks = told[number * RANKS : (number + 1) * RANKS]
        alike = {json.dumps(each) for it in ranks for each in it["generations"]}
        right += len(alike) == 1 and {each["step"] for each in ranks} == {10 * number}
    print(
        f"{generations} generations, {right} right; exit codes {codes},"
        f" {time.monotonic() - began:.0f} s, load {os.getloadavg()[0]:.1f}"
    )


if __name__ == "__main__":
    main()
