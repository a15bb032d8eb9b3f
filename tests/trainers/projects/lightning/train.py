"""Lightning with its default logger and two callbacks; goes on from last.ckpt."""

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader, Dataset


class Points(Dataset):
    def __len__(self):
        return 480

    def __getitem__(self, index):
        x = torch.randn(16, generator=torch.Generator().manual_seed(index))
        return x, x.sum().reshape(1)


class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(16, 512), torch.nn.ReLU(), torch.nn.Linear(512, 1))

    def training_step(self, batch, _):
        return torch.nn.functional.mse_loss(self.net(batch[0]), batch[1])

    def validation_step(self, batch, _):
        self.log("val", torch.nn.functional.mse_loss(self.net(batch[0]), batch[1]))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


if __name__ == "__main__":
    pl.seed_everything(0)
    saves = ModelCheckpoint(dirpath="checkpoints", every_n_train_steps=20, save_last=True, save_top_k=-1)
    trainer = pl.Trainer(max_epochs=3, accelerator="cpu", callbacks=[saves], log_every_n_steps=10)
    trainer.fit(
        Net(),
        DataLoader(Points(), batch_size=8, shuffle=True, num_workers=1),
        DataLoader(Points(), batch_size=16, num_workers=1),
        ckpt_path="last",
    )
    torch.save(trainer.model.state_dict(), "final.pt")
