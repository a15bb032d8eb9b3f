"""The tutorial on saving a general checkpoint, with a constant path that is loaded if it is there."""
import os
import time

import torch
from torch import nn, optim

EPOCHS = 6
PATH = "model.pt"

torch.manual_seed(0)
torch.set_num_threads(1)
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
epoch = 0
if os.path.exists(PATH):
    checkpoint = torch.load(PATH, weights_only=True)
    net.load_state_dict(checkpoint["model_state_dict"])
    optimizer.load_state_dict(checkpoint["optimizer_state_dict"])
    epoch = checkpoint["epoch"]
    LOSS = checkpoint["loss"]
net.train()
while epoch < EPOCHS:
    for i in range(10):
        inputs = torch.randn(8, 4, generator=torch.Generator().manual_seed(epoch * 10 + i))
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(inputs), inputs.sum(1, keepdim=True))
        loss.backward()
        optimizer.step()
        time.sleep(0.05)
    epoch += 1
    print(f"[{epoch}] loss: {loss.item():.3f}", flush=True)
    torch.save({
        "epoch": epoch,
        "model_state_dict": net.state_dict(),
        "optimizer_state_dict": optimizer.state_dict(),
        "loss": loss.item(),
    }, PATH)
torch.save(net.state_dict(), "final.pt")
