"""Trains, fails once, and logs to the trackers that it is given, as people do."""

from __future__ import annotations

import sys
import time
from pathlib import Path

trackers = sys.argv[1:]
log = []
if "wandb" in trackers:
    import wandb  # before torch, as many scripts have it

    log.append(lambda loss, _: wandb.log({"loss": loss}))
import torch  # noqa: E402 - after wandb

if "wandb" in trackers:
    sys.modules["wandb"].init(project="demo", mode="offline")
if "tensorboard" in trackers:
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter("runs/exp")
    log.append(lambda loss, step: writer.add_scalar("loss", loss, step))
if "mlflow" in trackers:
    import mlflow

    mlflow.set_tracking_uri("file:./mlruns")
    mlflow.start_run()
    log.append(lambda loss, step: mlflow.log_metric("loss", loss, step))
if "trackio" in trackers:
    import trackio

    trackio.init(project="demo")
    log.append(lambda loss, _: trackio.log({"loss": loss}))

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
failed = Path("failed")
for step in range(40):
    loss = model(torch.randn(8, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    for each in log:
        each(loss.item(), step)
    if step == 10 and not failed.exists():
        failed.touch()
        raise torch.OutOfMemoryError("no memory; token=hf_abcdefghijklmnopqrstuvwxyz0123456789")
    time.sleep(0.02)
