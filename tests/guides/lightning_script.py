"""Learn which points of a plane lie inside a ring, with Lightning. Resumes where it stopped."""

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from rocsteady_train.integrations.lightning import RocsteadyCallback, newest_checkpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CHECKPOINTS = "checkpoints"
Batch = tuple[torch.Tensor, torch.Tensor]


class Ring(pl.LightningModule):
    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(2, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1)
        )
        self.criterion = nn.BCEWithLogitsLoss()

    def training_step(self, batch: Batch, batch_idx: int) -> torch.Tensor:
        points, inside = batch
        loss = self.criterion(self.layers(points).squeeze(1), inside)
        if batch_idx == 0:
            print(f"step {self.global_step} loss {loss.item():.4f}", flush=True)
        return loss

    def on_before_optimizer_step(self, _optimizer: torch.optim.Optimizer) -> None:
        gradients = [weights.grad for weights in self.parameters() if weights.grad is not None]
        norm = nn.utils.get_total_norm(gradients)
        if not torch.isfinite(norm):
            raise FloatingPointError(f"the norm of the gradients is {norm.item()}")

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main() -> None:
    pl.seed_everything(0)
    points = torch.rand(4096, 2) * 2 - 1
    inside = ((points.norm(dim=1) - 0.6).abs() < 0.2).float()
    loader = DataLoader(TensorDataset(points, inside), batch_size=128, shuffle=True)

    saves = ModelCheckpoint(
        dirpath=CHECKPOINTS, every_n_train_steps=10, monitor="step", mode="max", save_top_k=3
    )
    trainer = pl.Trainer(
        max_steps=320,
        callbacks=[saves, RocsteadyCallback()],
        logger=False,
        enable_progress_bar=False,
    )
    model = Ring()
    trainer.fit(model, loader, ckpt_path=newest_checkpoint(CHECKPOINTS))
    torch.save(model.state_dict(), "model.pt")
    print(f"done at step {trainer.global_step}")


if __name__ == "__main__":
    main()
