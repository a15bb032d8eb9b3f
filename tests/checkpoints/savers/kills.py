"""Kills a process that saves as fast as it can, at random moments, again and again.

    python kills.py [--kills 500] [--folder FOLDER] [--seed 0]

Every tensor of the state is the step, so a state that is mixed shows. Each new process restores
what the killed one left: all of one step, and none older than what was said to be on the disk.
The processes are forked from one that has imported torch, which would take most of the time.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rocsteady_train import Checkpointer

TENSORS, ELEMENTS = 8, 65_536  # 4 MB in all
LONGEST = 0.15  # seconds from the first save to the kill; one save takes some tens of milliseconds


def fresh() -> dict[str, Any]:
    return {
        "model": {f"{n}": torch.zeros(ELEMENTS, dtype=torch.int64) for n in range(TENSORS)},
        "progress": {"step": 0},
    }


def saver(folder: Path, durable: int, pipe: int) -> None:
    """Restore, look, and save until killed; tell each step that is on the disk."""
    state = fresh()
    checkpointer = Checkpointer(folder, keep=2)
    step = checkpointer.restore(state) or 0
    steps = {int(value) for tensor in state["model"].values() for value in tensor.unique()}
    if steps != {step} or state["progress"]["step"] != step:
        tell(pipe, f"wrong: step {step} has tensors of {steps} and {state['progress']}")
    if step < durable:
        tell(pipe, f"wrong: step {step} is older than {durable}, which was on the disk")
    if checkpointer.passed_over:
        tell(pipe, f"wrong: {checkpointer.passed_over}")
    tell(pipe, f"restored {step}")
    while True:
        step += 1
        for tensor in state["model"].values():
            tensor.fill_(step)
        state["progress"]["step"] = step
        checkpointer.save(step, state)
        if step % 3:  # two of three are waited for; the third goes on beside the next
            checkpointer.wait()
            tell(pipe, f"durable {checkpointer.newest}")


def tell(pipe: int, text: str) -> None:
    os.write(pipe, f"{text}\n".encode())


@dataclass
class Tally:
    in_save: int = 0
    in_removal: int = 0
    durable: int = 0
    wrong: int = 0


def one_kill(folder: Path, after: float, tally: Tally) -> None:
    """Start a saver, kill it a while after it has restored, and read what it told."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        try:
            saver(folder, tally.durable, writing)
        except BaseException as error:  # noqa: BLE001 - told by the pipe
            tell(writing, f"wrong: {error!r}")
        os._exit(1)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        told = [stream.readline()]
        time.sleep(after)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        told += stream.readlines()
    restored = False
    for line in (text.decode().strip() for text in told):
        word, _, rest = line.partition(" ")
        restored = restored or word == "restored"
        if word == "durable":
            tally.durable = int(rest)
        elif word != "restored":
            tally.wrong += 1
            sys.stdout.write((line or "wrong: it ended without a word") + "\n")
    if not restored:
        tally.wrong += 1
        sys.stdout.write("wrong: it never came to save\n")
    left = [path.name for path in folder.glob("unfinished-*")]
    tally.in_removal += any(name.endswith("-removed") for name in left)
    tally.in_save += any(not name.endswith("-removed") for name in left)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    draw = random.Random(arguments.seed)
    tally = Tally()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        for _ in range(arguments.kills):
            one_kill(folder, draw.uniform(0, LONGEST), tally)
        one_kill(folder, 1.0, tally)  # the last one may save in peace, and is looked at as well
    sys.stdout.write(
        f"{arguments.kills} kills in {time.monotonic() - began:.0f} s: {tally.in_save} in the"
        f" middle of a save, {tally.in_removal} in the middle of a removal; {tally.durable} saves"
        f" on the disk; {tally.wrong} wrong\n"
    )
    sys.exit(1 if tally.wrong or not tally.durable else 0)


if __name__ == "__main__":
    main()
