"""How fast checkpoints reach the disk."""

from __future__ import annotations

import os
import time

from .experiment import Experiment, NotHere, WrongNumbers

SPARE = 4  # times the size must be free


def write(trial: Experiment) -> None:
    """Save to the disk for good, and load it again."""
    torch, size = trial.torch, trial.arguments["bytes"]
    if hasattr(os, "statvfs"):
        disk = os.statvfs(trial.folder)
        if disk.f_bavail * disk.f_frsize < SPARE * size:
            raise NotHere(f"fewer than {SPARE * size} bytes are free where it would be written")
    weights = {"weights": torch.randn(size // 4, device=trial.device)}
    path = os.path.join(trial.folder, "checkpoint.pt")
    slowest = fastest = 0.0
    for _ in trial.tries():
        began = time.perf_counter()
        with open(path, "wb") as stream:
            torch.save(weights, stream)
            stream.flush()
            os.fsync(stream.fileno())
        rate = os.path.getsize(path) / (time.perf_counter() - began)
        fastest, slowest = max(fastest, rate), min(slowest or rate, rate)
        loaded = torch.load(path, map_location=trial.device, weights_only=True)
        if not torch.equal(loaded["weights"], weights["weights"]):
            raise WrongNumbers("what was loaded is not what was saved")
        os.remove(path)
    trial.figure("bytes_per_s", fastest)
    trial.figure("bytes_per_s_slowest", slowest)
