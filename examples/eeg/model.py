"""A transformer over patches of a window: it fills in hidden patches, or answers with numbers."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset


class Encoder(nn.Module):
    """Cuts a window into patches of neighbouring channels, and gives a vector for each."""

    def __init__(self, channels, samples, args):
        super().__init__()
        groups = -(-channels // args.patch_channels)
        self.channels = channels
        self.patch = (args.patch_channels, args.patch_samples)
        self.missing = groups * args.patch_channels - channels  # the last group is filled with 0
        size = args.patch_channels * args.patch_samples
        self.register_buffer("scale", torch.ones(channels, 1))  # microvolts, of the training data
        self.embed = nn.Sequential(
            nn.Linear(size, args.width), nn.GELU(), nn.Linear(args.width, args.width)
        )
        self.group = nn.Parameter(0.5 * torch.randn(groups, 1, args.width))
        self.time = nn.Parameter(0.5 * torch.randn(samples // args.patch_samples, args.width))
        self.hidden = nn.Parameter(torch.zeros(args.width))
        layer = nn.TransformerEncoderLayer(
            args.width, args.heads, 4 * args.width,
            dropout=0.0, activation="gelu", batch_first=True, norm_first=True,
        )  # fmt: skip
        self.layers = nn.TransformerEncoder(
            layer, args.layers, nn.LayerNorm(args.width), enable_nested_tensor=False
        )
        self.fill_in = nn.Linear(args.width, size)

    def patches(self, signals):
        """Return windows x patches x values, in units of what is usual for each channel."""
        parts = nn.functional.pad(signals / self.scale, (0, 0, 0, self.missing))
        channels, samples = self.patch
        parts = parts.unflatten(2, (-1, samples)).unflatten(1, (-1, channels))
        return parts.transpose(2, 3).flatten(3).flatten(1, 2)

    def forward(self, patches, mask=None):
        tokens = self.embed(patches)
        if mask is not None:
            tokens = torch.where(mask[..., None], self.hidden, tokens)
        return self.layers(tokens + (self.group + self.time).flatten(0, 1))


class Regressor(nn.Module):
    """An encoder and a head: windows in microvolts in, numbers in their own units out."""

    def __init__(self, encoder, outputs):
        super().__init__()
        self.encoder = encoder
        self.head = nn.Linear(encoder.group.shape[2], outputs)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.register_buffer("centre", torch.zeros(outputs))
        self.register_buffer("spread", torch.ones(outputs))

    def forward(self, signals):
        tokens = self.encoder(self.encoder.patches(signals))
        return self.centre + self.spread * self.head(tokens.mean(1))


class Part(Dataset):
    """Some of the windows, read from the file when they are asked for, with their labels."""

    def __init__(self, signals, labels):
        self.signals, self.labels = signals, labels

    def __len__(self):
        return len(self.signals[1])

    def __getitem__(self, number):
        whole, places = self.signals
        return torch.from_numpy(whole[places[number]].astype(np.float32)), self.labels[number]


def load_parts(folder, labelled, held_out=0.3):
    """Return the windows of each phase, to learn from and to measure on. Subjects are in one only.

    Pre-training has the passive tasks of all subjects that are not held out; the heads learn
    from the first of them only, since labels are what is scarce.
    """
    signals = np.load(folder / "signals.npy", mmap_mode="r")
    with np.load(folder / "labels.npz") as file:
        labels = {name: file[name] for name in file.files}
    subjects = int(labels["subject"].max()) + 1
    kept = labels["subject"] >= (1 - held_out) * subjects
    known = labels["subject"] < labelled * subjects
    response, factors = labels["response"][:, None], labels["factors"]
    has_response, has_factors = (np.isfinite(given).all(axis=1) for given in (response, factors))

    def part(chosen, given):
        return Part((signals, np.flatnonzero(chosen)), torch.from_numpy(given[chosen]))

    active = labels["active"]
    return {
        "pretrain": (part(~active & ~kept, response), part(~active & kept, response)),
        "challenge_1": (
            part(active & has_response & known & ~kept, response),
            part(active & has_response & kept, response),
        ),
        "challenge_2": (
            part(~active & has_factors & known & ~kept, factors),
            part(~active & has_factors & kept, factors),
        ),
    }
