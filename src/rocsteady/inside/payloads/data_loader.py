"""DataLoader with and without worker processes. Its data are made up as they are asked for."""

from __future__ import annotations

from typing import Any

from .experiment import Experiment, NotHere, WrongNumbers

BATCH, WIDTH = 8, 256
EPOCH = 100  # batches; workers that are forked are started anew for each, as in real trainings
FOREVER = 1 << 40


class Numbers:
    """Rows that tell by themselves which they are."""

    def __init__(self, length: int) -> None:
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        import torch  # noqa: PLC0415 - in a worker too

        row = torch.arange(WIDTH, dtype=torch.float32)
        return row + index % EPOCH


def loader(trial: Experiment) -> None:
    """Load batches, and compute with them on the device."""
    torch, arguments = trial.torch, trial.arguments
    workers, pinned, method = arguments["workers"], arguments["pinned"], arguments["method"]
    if pinned and trial.device == "cpu":
        raise NotHere("no GPU")
    if method and method not in torch.multiprocessing.get_all_start_methods():
        raise NotHere(f"this system does not have {method}")
    # The GPU is in use when workers are started, as it is in a training.
    weight = torch.ones(WIDTH, 4, device=trial.device)
    trial.wait()
    batches = FOREVER if method in ("spawn", "forkserver") else EPOCH
    options = {"multiprocessing_context": method} if workers else {}
    made = torch.utils.data.DataLoader(
        Numbers(batches * BATCH),
        BATCH,
        num_workers=workers,
        pin_memory=pinned,
        **options,
    )
    stream = _epochs(made)
    for number in trial.tries():
        batch = next(stream).to(trial.device, non_blocking=pinned)
        first = number % batches * BATCH
        expected = [(first + each) % EPOCH for each in range(BATCH)]
        if batch[:, 0].tolist() != expected:
            raise WrongNumbers(f"batch {number} holds {batch[:, 0].tolist()}, not {expected}")
        _ = batch @ weight
    stream.close()


def _epochs(made: Any) -> Any:
    while True:
        yield from made
