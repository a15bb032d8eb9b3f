"""Small models of ten kinds, for a search that must not know them: ``models.py NAME [STEPS]``."""

from __future__ import annotations

import sys

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 4


def mlp():
    net = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 8))
    train(net, lambda: F.mse_loss(net(torch.randn(24, 16)), torch.randn(24, 8)))


def cnn():
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10),
    )  # fmt: skip
    train(net, lambda: F.cross_entropy(net(torch.randn(8, 3, 16, 16)), classes(8, 10)))


def transformer():
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    net = nn.ModuleDict({"embed": nn.Embedding(50, 32), "layers": nn.TransformerEncoder(layer, 2)})

    def loss():
        words = classes((4, 12), 50)
        found = net["layers"](net["embed"](words)).flatten(0, 1)
        return F.cross_entropy(found @ net["embed"].weight.T, words.flatten())

    train(net, loss)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)

    def forward(self, x):
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, 4, 8).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2))


def sdpa():
    net = nn.Sequential(nn.Embedding(50, 32), Attention(), nn.RMSNorm(32), nn.Linear(32, 50))
    words = classes((4, 20), 50)
    train(net, lambda: F.cross_entropy(net(words)[:, :-1].flatten(0, 1), words[:, 1:].flatten()))


def lstm():
    net, head = nn.LSTM(12, 24, 2, batch_first=True), nn.Linear(24, 4)
    both = nn.ModuleList([net, head])
    train(both, lambda: F.cross_entropy(head(net(torch.randn(6, 9, 12))[0][:, -1]), classes(6, 4)))


def gnn():
    net = nn.ModuleList([nn.Linear(8, 16), nn.Linear(16, 4)])

    def loss():
        edges, x = classes((2, 120), 30), torch.randn(30, 8)
        for layer in net:
            heard = torch.zeros_like(x).index_add_(0, edges[1], x[edges[0]])
            x = F.relu(layer(x + heard))
        at = edges[1][:, None].expand(-1, 4)
        best = torch.zeros(30, 4).scatter_reduce(0, at, x[edges[0]], "amax")
        return F.cross_entropy(x + best, classes(30, 4))

    train(net, loss)


def gan():
    torch.manual_seed(0)
    make = nn.Sequential(nn.Linear(6, 24), nn.LeakyReLU(0.2), nn.Linear(24, 10), nn.Tanh())
    judge = nn.Sequential(nn.Linear(10, 24), nn.LeakyReLU(0.2), nn.Linear(24, 1))
    of_make, of_judge = (torch.optim.Adam(each.parameters()) for each in (make, judge))
    for step in range(steps()):
        real, fake = torch.randn(16, 10), make(torch.randn(16, 6))
        loss = F.softplus(-judge(real)).mean() + F.softplus(judge(fake.detach())).mean()
        of_judge.zero_grad()
        loss.backward()
        of_judge.step()
        loss = F.binary_cross_entropy_with_logits(judge(fake), torch.ones(16, 1))
        of_make.zero_grad()
        loss.backward()
        of_make.step()
        print(step, loss.item(), flush=True)


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.middle = nn.Conv2d(1, 8, 3, 2, 1), nn.Conv2d(8, 8, 3, 1, 1)
        self.norm, self.up = nn.GroupNorm(4, 8), nn.ConvTranspose2d(8, 8, 4, 2, 1)
        self.time, self.out = nn.Linear(1, 8), nn.Conv2d(9, 1, 3, 1, 1)

    def forward(self, x, t):
        h = F.silu(self.norm(self.down(x))) + self.time(t)[..., None, None]
        h = F.interpolate(self.up(F.silu(self.middle(h))), x.shape[-2:], mode="nearest")
        return self.out(torch.cat([h, x], 1))


def diffusion():
    net = UNet()

    def loss():
        x, noise, t = torch.randn(4, 1, 16, 16), torch.randn(4, 1, 16, 16), torch.rand(4, 1)
        mixed = x * (1 - t[..., None, None]).sqrt() + noise * t[..., None, None].sqrt()
        return F.mse_loss(net(mixed, t), noise)

    train(net, loss)


def mixed(kind=torch.bfloat16):
    net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))
    scaler = torch.amp.GradScaler("cpu", enabled=kind is torch.float16)

    def loss():
        with torch.autocast("cpu", kind):
            return F.cross_entropy(net(torch.randn(32, 32)), classes(32, 10))

    train(net, loss, scaler)


def half():
    mixed(torch.float16)


def clipped():
    """Masks of -inf, dropout, clipping, SGD with momentum, a scheduler."""
    net = nn.MultiheadAttention(16, 2, dropout=0.1, batch_first=True)
    mask = torch.full((6, 6), float("-inf")).triu(1)
    optimizer = torch.optim.SGD(net.parameters(), 0.01, momentum=0.9)
    plan = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    for step in range(steps()):
        x = torch.randn(3, 6, 16)
        loss = F.huber_loss(net(x, x, x, attn_mask=mask)[0], x)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        plan.step()
        print(step, loss.item(), flush=True)


def hugging_face():
    """A GPT-2 from a configuration, with the library's own loop."""
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 32, "vocab_size": 64}
    net = GPT2LMHeadModel(GPT2Config(**sizes))
    words = classes((4, 16), 64)
    train(net, lambda: net(input_ids=words, labels=words).loss)


def lightning():
    import lightning as L

    class Module(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2))

        def training_step(self, batch, _):
            return F.cross_entropy(self.net(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    data = torch.utils.data.TensorDataset(torch.randn(32, 8), classes(32, 2))
    loader = torch.utils.data.DataLoader(data, batch_size=8)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    L.Trainer(max_epochs=1, accelerator="cpu", **quiet).fit(Module(), loader)


def classes(shape, count):
    return torch.randint(0, count, shape if isinstance(shape, tuple) else (shape,))


def steps():
    return int(sys.argv[2]) if len(sys.argv) > 2 else STEPS


def train(net, loss_of, scaler=None):
    optimizer = torch.optim.AdamW(net.parameters(), 1e-3)
    for step in range(steps()):
        loss = loss_of()
        optimizer.zero_grad()
        if scaler is None:
            loss.backward()
            optimizer.step()
        else:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        print(step, loss.item(), flush=True)


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    {name: each for name, each in globals().items() if callable(each)}[sys.argv[1]]()
