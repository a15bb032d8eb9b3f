"""Lightning: fit(ckpt_path="last") continues from its own newest file."""

import lightning as L
import torch


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, batch_idx):
        x, y = batch
        return torch.nn.functional.mse_loss(self.layer(x), y)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)


def main():
    torch.manual_seed(0)
    model = Net()
    trainer = L.Trainer(max_epochs=6)
    trainer.fit(model, ckpt_path="last")
    torch.save(model.state_dict(), "final.pt")


if __name__ == "__main__":
    main()
