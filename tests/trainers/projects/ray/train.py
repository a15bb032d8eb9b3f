"""Ray Train on two CPU workers, as in its guide; goes on from the newest checkpoint of the run."""

import os
import tempfile
import time

import ray.train
import ray.train.torch
import torch
from ray.train import Checkpoint, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer


def train(config):
    torch.manual_seed(0)
    model = ray.train.torch.prepare_model(torch.nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters())
    data = torch.utils.data.TensorDataset(torch.randn(320, 16))
    loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)
    loader = ray.train.torch.prepare_data_loader(loader)
    first = 0
    checkpoint = ray.train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder:
            state = torch.load(os.path.join(folder, "state.pt"))
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["epoch"] + 1
    for epoch in range(first, config["epochs"]):
        if hasattr(loader.sampler, "set_epoch"):
            loader.sampler.set_epoch(epoch)
        for (x,) in loader:
            loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        time.sleep(3)  # Ray's controller asks every 2 s, and notes the checkpoints only then
        with tempfile.TemporaryDirectory() as folder:
            saved = None
            if ray.train.get_context().get_world_rank() == 0:
                state = {
                    "model": model.module.state_dict(), "optimizer": optimizer.state_dict(),
                    "epoch": epoch,
                }
                torch.save(state, os.path.join(folder, "state.pt"))
                saved = Checkpoint.from_directory(folder)
            ray.train.report({"epoch": epoch, "loss": loss.item()}, checkpoint=saved)


if __name__ == "__main__":
    ray.init(num_cpus=3, include_dashboard=False)
    trainer = TorchTrainer(
        train,
        train_loop_config={"epochs": 6},
        scaling_config=ScalingConfig(num_workers=2, use_gpu=False),
        run_config=RunConfig(name="tiny", storage_path=os.path.abspath("results")),
    )
    result = trainer.fit()
    torch.save(torch.load(os.path.join(result.checkpoint.path, "state.pt"))["model"], "final.pt")
    print("done", result.metrics)
