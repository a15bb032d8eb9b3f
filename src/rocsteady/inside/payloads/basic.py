"""Whether torch is there, and whether it sees a device."""

from __future__ import annotations

import time

from .experiment import Experiment, NotHere


def import_torch(trial: Experiment) -> None:
    """Import torch."""
    for _ in trial.tries():
        began = time.monotonic()
        torch = trial.torch
        trial.figure("seconds", time.monotonic() - began)
        trial.say("version", torch.__version__)


def device_visible(trial: Experiment) -> None:
    """Count the GPUs that torch sees, and make a number on each."""
    torch = trial.torch
    for _ in trial.tries():
        if not torch.cuda.is_available():
            raise NotHere("no GPU")
        for index in range(torch.cuda.device_count()):
            one = torch.ones((), device=f"cuda:{index}") + 1
            trial.compare(one, torch.tensor(2.0), 1e-6)
        trial.figure("gpus", torch.cuda.device_count())
        trial.say("gpu", torch.cuda.get_device_name(0))
