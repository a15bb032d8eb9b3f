"""PyTorch's ImageNet example: --resume PATH, checkpoint.pth.tar and model_best.pth.tar."""
import argparse
import os
import shutil
import time

import torch
import torch.nn as nn

parser = argparse.ArgumentParser(description="Training")
parser.add_argument("--epochs", default=6, type=int, metavar="N")
parser.add_argument("--start-epoch", default=0, type=int, metavar="N")
parser.add_argument("--lr", default=0.1, type=float)
parser.add_argument("--resume", default="", type=str, metavar="PATH", help="path to latest checkpoint")
parser.add_argument("-e", "--evaluate", dest="evaluate", action="store_true")
parser.add_argument("--pretrained", dest="pretrained", action="store_true")


def main():
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
    best_acc1 = 0.0
    if args.resume:
        if os.path.isfile(args.resume):
            print(f"=> loading checkpoint '{args.resume}'")
            checkpoint = torch.load(args.resume, map_location="cpu", weights_only=False)
            args.start_epoch = checkpoint["epoch"]
            best_acc1 = checkpoint["best_acc1"]
            model.load_state_dict(checkpoint["state_dict"])
            optimizer.load_state_dict(checkpoint["optimizer"])
            scheduler.load_state_dict(checkpoint["scheduler"])
            print(f"=> loaded checkpoint '{args.resume}' (epoch {checkpoint['epoch']})")
        else:
            print(f"=> no checkpoint found at '{args.resume}'")
    for epoch in range(args.start_epoch, args.epochs):
        loss = train(model, optimizer, epoch)
        acc1 = -loss
        scheduler.step()
        is_best = acc1 > best_acc1 or epoch == 0
        best_acc1 = max(acc1, best_acc1)
        save_checkpoint({
            "epoch": epoch + 1,
            "state_dict": model.state_dict(),
            "best_acc1": best_acc1,
            "optimizer": optimizer.state_dict(),
            "scheduler": scheduler.state_dict(),
        }, is_best)
    torch.save(model.state_dict(), "final.pt")


def train(model, optimizer, epoch):
    for i in range(10):
        g = torch.Generator().manual_seed(epoch * 10 + i)
        x = torch.randn(8, 4, generator=g)
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.05)
        if i % 5 == 0:
            print(f"Epoch: [{epoch}][{i + 1}/10]\tLoss {loss.item():.4e}", flush=True)
    return loss.item()


def save_checkpoint(state, is_best, filename="checkpoint.pth.tar"):
    torch.save(state, filename)
    if is_best:
        shutil.copyfile(filename, "model_best.pth.tar")


if __name__ == "__main__":
    main()
