"""The scripts of the cells: a training of some ranks, and the same as Lightning has it.

Rank ``$BAD`` meets ``$FAULT`` once, before step 45. Each saves every 20 steps and begins at what
was saved. None imports rocsteady.
"""

from __future__ import annotations

import re

DATA = """
import os, signal, sys, threading, time
import torch
import torch.distributed as dist
from torch import nn

def number(*names):
    return int(next(os.environ[name] for name in names if name in os.environ))

def tell(text):
    os.write(1, (text + "\\n").encode())

def get_stuck():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()  # stuck

def strikes(*faults):
    if os.environ.get("FAULT") not in faults or os.path.exists("faulted"):
        return False
    open("faulted", "w").close()
    return True

class Data(torch.utils.data.Dataset):
    def __init__(self, first, is_bad):
        self.first, self.is_bad = first, is_bad

    def __len__(self):
        return 8 * (80 - self.first)

    def __getitem__(self, index):
        if self.is_bad and self.first + index // 8 == 45 and strikes("loader"):
            get_stuck()  # in the loader
        return torch.randn(8), torch.zeros(1)

def fault(step, is_bad):
    if not is_bad or step != 45 or os.environ.get("FAULT") == "loader":
        return
    if strikes("kill"):
        os.kill(os.getpid(), signal.SIGKILL)
    if strikes("exit"):
        os._exit(3)
    if strikes("error"):
        raise ValueError("bad sample in shard 7")  # the error
    if strikes("mismatch"):
        dist.barrier()  # of one rank

class Net(nn.Module):
    def __init__(self, is_bad):
        super().__init__()
        self.layer, self.is_bad, self.step = nn.Linear(8, 1), is_bad, 0

    def forward(self, x):
        if self.training and self.is_bad and self.step == 45 and strikes("hang"):
            get_stuck()  # in forward
        return self.layer(x)
"""
PLAIN = """
def main():
    rank = number("RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")
    ranks = number("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS")
    is_bad = rank == number("BAD")
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    net = Net(is_bad)
    model = nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.Adam(model.parameters())
    first = 0
    if os.path.exists("ckpt.pt"):
        saved = torch.load("ckpt.pt")
        net.load_state_dict(saved["net"])
        optimizer.load_state_dict(saved["optimizer"])
        first = saved["step"]
    tell(f"RANK {rank} of {ranks} begins at {first}")
    loader = torch.utils.data.DataLoader(Data(first, is_bad), batch_size=8, num_workers=1)
    for step, (x, y) in enumerate(loader, first):
        net.step = step
        fault(step, is_bad)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()  # all ranks
        optimizer.step()
        time.sleep(0.05)
        if (step + 1) % 20 == 0:
            if rank == 0:
                state = {"net": net.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save({**state, "step": step + 1}, "ckpt.tmp")
                os.replace("ckpt.tmp", "ckpt.pt")
            dist.barrier()
    tell(f"RANK {rank} is done")
    dist.destroy_process_group()

main()
"""
LIGHTNING = """
import lightning
from lightning.pytorch.callbacks import ModelCheckpoint

class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = Net(False)

    def on_train_start(self):
        self.net.is_bad = self.global_rank == number("BAD")
        tell(f"RANK {self.global_rank} of {self.trainer.world_size} begins at {self.global_step}")

    def training_step(self, batch, index):
        self.net.step = self.global_step
        fault(self.global_step, self.net.is_bad)
        time.sleep(0.05)
        return nn.functional.mse_loss(self.net(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())

    def train_dataloader(self):
        is_bad = int(os.environ.get("LOCAL_RANK", 0)) == number("BAD")
        sampled = Data(0, is_bad)
        return torch.utils.data.DataLoader(sampled, batch_size=8, num_workers=1)

    def on_train_end(self):
        tell(f"RANK {self.global_rank} is done")

def main():
    save = ModelCheckpoint("ck", "{step}", every_n_train_steps=20, save_top_k=-1, save_last=True)
    trainer = lightning.Trainer(
        accelerator="cpu", devices=2, strategy="ddp", max_steps=80, max_epochs=-1,
        callbacks=[save], logger=False, enable_progress_bar=False, use_distributed_sampler=False,
    )
    last = "ck/last.ckpt"
    trainer.fit(Module(), ckpt_path=last if os.path.exists(last) else None)

main()
"""
SCRIPTS = {"train.py": DATA + PLAIN, "lit.py": DATA + LIGHTNING}


def line_of(script: str, comment: str) -> int:
    """Return the line of a script that ends with this comment."""
    lines = SCRIPTS[script].strip("\n").split("\n")
    return next(i for i, line in enumerate(lines, 1) if re.search(rf"# {comment}$", line))
