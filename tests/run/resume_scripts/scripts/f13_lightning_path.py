"""Lightning: --ckpt_path is handed to Trainer.fit; each start writes to another version_N."""
from argparse import ArgumentParser

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
    parser = ArgumentParser()
    parser.add_argument("--ckpt_path", default=None)
    parser.add_argument("--max_epochs", type=int, default=6)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = Net()
    trainer = L.Trainer(max_epochs=args.max_epochs)
    trainer.fit(model, ckpt_path=args.ckpt_path)
    torch.save(model.state_dict(), "final.pt")


if __name__ == "__main__":
    main()
