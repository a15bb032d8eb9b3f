"""A plain loop on two ranks, as in PyTorch's own example of torchrun; goes on from its checkpoint."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Points(Dataset):
    def __len__(self):
        return 480

    def __getitem__(self, index):
        x = torch.randn(16, generator=torch.Generator().manual_seed(index))
        return x, x.sum().reshape(1)


dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Sequential(
    torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)
))
optimizer = torch.optim.Adam(model.parameters())
data = Points()
sampler = DistributedSampler(data, seed=0)
loader = DataLoader(data, batch_size=8, sampler=sampler, num_workers=1)
os.makedirs("checkpoints", exist_ok=True)
first = 0
saved = sorted(os.listdir("checkpoints"))
if saved:
    state = torch.load(os.path.join("checkpoints", saved[-1]))
    model.module.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    first = state["epoch"] + 1
for epoch in range(first, 5):
    sampler.set_epoch(epoch)
    for x, y in loader:
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if rank == 0:
        print(f"epoch {epoch + 1}/5 loss {loss.item():.4f}", flush=True)
        state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
        torch.save(state, f"checkpoints/epoch_{epoch + 1}.pt")
    dist.barrier()
if rank == 0:
    torch.save(model.module.state_dict(), "final.pt")
dist.destroy_process_group()
