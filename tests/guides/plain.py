"""Learn which points of a plane lie inside a ring. Resumes where it stopped."""

import rocsteady_train
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 25


def main() -> None:
    torch.manual_seed(0)
    points = torch.rand(4096, 2) * 2 - 1
    inside = ((points.norm(dim=1) - 0.6).abs() < 0.2).float()
    loader = DataLoader(TensorDataset(points, inside), batch_size=64, shuffle=True)

    width = 128
    model = nn.Sequential(
        nn.Linear(2, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * len(loader))
    criterion = nn.BCEWithLogitsLoss()

    loop = rocsteady_train.Loop(
        model=model,
        optimizer=optimizer,
        scheduler=scheduler,
        loader=loader,
        epochs=EPOCHS,
        lose_at_most=0.1,  # seconds, because this example is short; leave it out in a real script
    )

    def loss_of(part: list[torch.Tensor]) -> torch.Tensor:
        return criterion(model(part[0]).squeeze(1), part[1])

    for batch in loop:
        loss = loop.step(batch, loss_of, reduction="mean")  # memory runs out: train it in parts
        if not torch.isfinite(loss):
            raise FloatingPointError(f"the loss is {loss.item()}")
        if loop.steps % 100 == 0:
            print(f"step {loop.steps} loss {loss.item():.4f}", flush=True)

    torch.save(model.state_dict(), "model.pt")
    print(f"done at step {loop.steps}")


if __name__ == "__main__":
    main()
