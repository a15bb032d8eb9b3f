"""--resume is the id of a tracker's run; no checkpoint is ever loaded."""
import argparse
import time

import torch
import wandb

parser = argparse.ArgumentParser()
parser.add_argument("--resume", type=str, default=None, help="wandb run id to resume logging to")
parser.add_argument("--epochs", type=int, default=6)
args = parser.parse_args()
wandb.init(project="demo", id=args.resume, resume="allow" if args.resume else None)
torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
for epoch in range(args.epochs):
    for i in range(10):
        x = torch.randn(8, 4, generator=torch.Generator().manual_seed(epoch * 10 + i))
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.05)
    wandb.log({"loss": loss.item(), "epoch": epoch})
    print("epoch", epoch, "loss", loss.item(), flush=True)
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, f"ckpt_{epoch}.pt")
