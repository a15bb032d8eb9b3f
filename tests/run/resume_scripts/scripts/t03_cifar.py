"""pytorch-cifar: --resume is a flag, and the checkpoint has weights, accuracy and epoch only."""
import argparse
import os
import time

import torch
import torch.optim as optim

parser = argparse.ArgumentParser(description="CIFAR10 Training")
parser.add_argument("--lr", default=0.1, type=float, help="learning rate")
parser.add_argument("--resume", "-r", action="store_true", help="resume from checkpoint")
args = parser.parse_args()
best_acc = -1e9
start_epoch = 0
torch.manual_seed(0)
torch.set_num_threads(1)
net = torch.nn.Linear(4, 1)
if args.resume:
    print("==> Resuming from checkpoint..")
    assert os.path.isdir("checkpoint"), "Error: no checkpoint directory found!"
    checkpoint = torch.load("./checkpoint/ckpt.pth")
    net.load_state_dict(checkpoint["net"])
    best_acc = checkpoint["acc"]
    start_epoch = checkpoint["epoch"]
optimizer = optim.SGD(net.parameters(), lr=args.lr, momentum=0.9, weight_decay=5e-4)
for epoch in range(start_epoch, 6):
    print("\nEpoch: %d" % epoch, flush=True)
    for i in range(10):
        x = torch.randn(8, 4, generator=torch.Generator().manual_seed(epoch * 10 + i))
        optimizer.zero_grad()
        loss = (net(x) - x.sum(1, keepdim=True)).square().mean()
        loss.backward()
        optimizer.step()
        time.sleep(0.05)
    acc = -loss.item()
    if acc > best_acc:
        print("Saving..")
        state = {"net": net.state_dict(), "acc": acc, "epoch": epoch}
        if not os.path.isdir("checkpoint"):
            os.mkdir("checkpoint")
        torch.save(state, "./checkpoint/ckpt.pth")
        best_acc = acc
torch.save(net.state_dict(), "final.pt")
