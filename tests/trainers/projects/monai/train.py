"""A segmentation loop with MONAI: its network, loss, transforms and loader."""

import argparse

import torch
from monai.data import DataLoader, Dataset
from monai.losses import DiceLoss
from monai.networks.nets import UNet
from monai.transforms import Compose, RandFlipd, ToTensord
from monai.utils import set_determinism

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=6)
parser.add_argument("--resume", default="")
args = parser.parse_args()
set_determinism(0)
items = []
for number in range(60):
    image = torch.rand(1, 32, 32, generator=torch.Generator().manual_seed(number))
    items.append({"image": image, "label": (image > 0.5).float()})
data = Dataset(items, Compose([RandFlipd(["image", "label"], prob=0.5), ToTensord(["image", "label"])]))
loader = DataLoader(data, batch_size=4, shuffle=True, num_workers=1)
model = UNet(spatial_dims=2, in_channels=1, out_channels=1, channels=(8, 16, 32), strides=(2, 2))
loss_function, optimizer = DiceLoss(sigmoid=True), torch.optim.Adam(model.parameters(), 1e-3)
start = 0
if args.resume:
    checkpoint = torch.load(args.resume)
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    start = checkpoint["epoch"] + 1
for epoch in range(start, args.epochs):
    total = 0.0
    for batch in loader:
        optimizer.zero_grad()
        loss = loss_function(model(batch["image"]), batch["label"])
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"epoch {epoch + 1}/{args.epochs} average loss: {total / len(loader):.4f}", flush=True)
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
    torch.save(state, f"checkpoint_epoch_{epoch + 1}.pt")
torch.save(model.state_dict(), "final.pt")
