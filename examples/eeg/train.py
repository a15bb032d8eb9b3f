"""Pre-train a small transformer on many-channel signals, then fine-tune it for two tasks.

Phase 1, pretrain: half of the patches (four channels, a quarter of a second) are hidden, and the
model fills them in; no labels. Phase 2, finetune: two heads on the same encoder learn from fewer,
labelled windows which rhythm there is and on which side a stimulus was.
"""

import argparse
import json
import os
import statistics
import time
from pathlib import Path

import numpy as np
import torch
from make_data import RHYTHMS, STIMULI, make_data
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class SignalModel(nn.Module):
    def __init__(self, channels, samples, args):
        super().__init__()
        self.patch = (args.patch_channels, args.patch_samples)
        size = args.patch_channels * args.patch_samples
        rows, times = channels // args.patch_channels, samples // args.patch_samples
        self.embed = nn.Sequential(
            nn.Linear(size, args.width), nn.GELU(), nn.Linear(args.width, args.width)
        )
        self.row = nn.Parameter(0.5 * torch.randn(rows, 1, args.width))
        self.time = nn.Parameter(0.5 * torch.randn(times, args.width))
        self.hidden = nn.Parameter(torch.zeros(args.width))
        layer = nn.TransformerEncoderLayer(
            args.width,
            args.heads,
            4 * args.width,
            dropout=0.0,
            activation="gelu",
            batch_first=True,
            norm_first=True,
        )
        self.encoder = nn.TransformerEncoder(
            layer, args.layers, nn.LayerNorm(args.width), enable_nested_tensor=False
        )
        self.fill_in = nn.Linear(args.width, size)
        self.rhythm = nn.Linear(args.width, len(RHYTHMS))
        self.stimulus = nn.Linear(args.width, len(STIMULI))

    def patches(self, signals):
        """Cut windows of channels x samples into rows of patches: windows, patches, values."""
        channels, samples = self.patch
        parts = signals.unflatten(2, (-1, samples)).unflatten(1, (-1, channels))
        return parts.transpose(2, 3).flatten(3).flatten(1, 2)

    def encode(self, patches, mask=None):
        tokens = self.embed(patches)
        if mask is not None:
            tokens = torch.where(mask[..., None], self.hidden, tokens)
        return self.encoder(tokens + (self.row + self.time).flatten(0, 1))

    def forward(self, signals):
        window = self.encode(self.patches(signals)).mean(1)
        return self.rhythm(window), self.stimulus(window)


def load_signals(args):
    """Return training and held-out windows. No subject is in both."""
    if not Path(args.data).exists():
        print(f"{args.data} is not there: making it", flush=True)
        make_data(args.data)
    with np.load(args.data) as file:
        signals = torch.from_numpy(file["signals"].astype(np.float32))
        rhythm = torch.from_numpy(file["rhythm"])
        stimulus = torch.from_numpy(file["stimulus"])
        subject = torch.from_numpy(file["subject"])
    held_out = subject > 0.8 * subject.max()
    train = torch.nonzero(~held_out)[:, 0][: args.windows]
    signals -= signals[train].mean((0, 2), keepdim=True)
    signals /= signals[train].std((0, 2), keepdim=True)
    return (
        TensorDataset(signals[train], rhythm[train], stimulus[train]),
        TensorDataset(signals[held_out], rhythm[held_out], stimulus[held_out]),
    )


def draw_mask(patches, generator=None):
    """Hide half of the patches. Drawn on the CPU, so that a seed means the same anywhere."""
    return (torch.rand(patches.shape[:2], generator=generator) < 0.5).to(patches.device)


def pretrain_loss(model, batch):
    patches = model.patches(batch[0])
    mask = draw_mask(patches)
    filled_in = model.fill_in(model.encode(patches, mask))
    return nn.functional.mse_loss(filled_in[mask], patches[mask])


def finetune_loss(model, batch):
    signals, *truths = batch
    answers = model(signals)
    return sum(map(nn.functional.cross_entropy, answers, truths))


LOSSES = {"pretrain": pretrain_loss, "finetune": finetune_loss}


def train_phase(phase, model, windows, run, args):
    """Train from run["step"], which counts over both phases, to the end of this phase."""
    first, last = run[phase]
    per_epoch = len(windows) // args.batch_size
    optimizer = torch.optim.AdamW(model.parameters())
    if run["optimizer"] is not None:
        optimizer.load_state_dict(run["optimizer"])
    model.train()
    while run["step"] < last:
        epoch, done = divmod(run["step"] - first, per_epoch)
        shuffle = torch.Generator().manual_seed(1000 * args.seed + epoch)
        loader = DataLoader(
            windows, args.batch_size, shuffle=True, drop_last=True, generator=shuffle
        )
        for index, batch in enumerate(loader):
            if index < done:
                continue  # trained on before the checkpoint
            share = (run["step"] - first) / (last - first)
            rate = min(1, 0.1 + 10 * share) * (1 - share)  # up quickly, then down
            optimizer.param_groups[0]["lr"] = args.learning_rate * rate
            optimizer.zero_grad()
            loss = LOSSES[phase](model, [part.to(args.device) for part in batch])
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            run["step"] += 1
            if run["step"] % args.log_every == 0 or run["step"] == last:
                epochs, steps = (last - first) // per_epoch, run["finetune"][1]
                where = f"epoch {epoch + 1}/{epochs} step {run['step']}/{steps}"
                print(f"{phase} {where} loss {loss.item():.3f}", flush=True)
            if run["step"] % args.checkpoint_every == 0 or run["step"] == last:
                save_checkpoint(model, optimizer, run, args)


def save(value, path):
    """Write a file so that it is whole or not there, even after kill -9."""
    temporary = path.with_name(path.name + ".tmp")
    torch.save(value, temporary)
    temporary.replace(path)


def save_checkpoint(model, optimizer, run, args):
    folder = Path(args.output) / "checkpoints"
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint = {
        "step": run["step"],
        "pretraining": run["pretraining"],
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "random": torch.get_rng_state(),  # the masks; nothing else is drawn but the shuffle
    }
    save(checkpoint, folder / f"step-{run['step']:06}.pt")
    for old in sorted(folder.glob("*.pt"), key=os.path.getmtime)[:-3]:
        old.unlink()


@torch.no_grad()
def evaluate_pretraining(model, windows, args):
    """Return the loss on hidden patches, and that of the mean, which is 0 in each channel."""
    model.eval()
    generator = torch.Generator().manual_seed(0)
    filled_in, mean, count = 0.0, 0.0, 0
    for signals, *_ in DataLoader(windows, args.batch_size):
        patches = model.patches(signals.to(args.device))
        mask = draw_mask(patches, generator)
        guess = model.fill_in(model.encode(patches, mask))
        filled_in += (guess - patches)[mask].square().sum().item()
        mean += patches[mask].square().sum().item()
        count += patches[mask].numel()
    return {
        "loss": filled_in / count,
        "mean_loss": mean / count,
        "beats_the_mean": filled_in < mean,
    }


@torch.no_grad()
def evaluate_heads(model, windows, args):
    """Return the accuracy of each head, and the share of its commonest class."""
    model.eval()
    right = [0, 0]
    for signals, *truths in DataLoader(windows, args.batch_size):
        for head, answer in enumerate(model(signals.to(args.device))):
            right[head] += (answer.argmax(1).cpu() == truths[head]).sum().item()
    return {
        name: {
            "accuracy": right[head] / len(windows),
            "majority": windows.tensors[1 + head].bincount().max().item() / len(windows),
        }
        for head, name in enumerate(("rhythm", "stimulus"))
    }


@torch.no_grad()
def median_latency(model, window, args, repeats=50):
    """Return the milliseconds from one window in memory to both answers in memory."""
    model.eval()
    times = []
    for _ in range(10 + repeats):  # the first ten warm up
        start = time.perf_counter()
        for answer in model(window[None].to(args.device)):
            answer.cpu()  # waits for the GPU, if there is one
        times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times[10:])


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="signals.npz", help="made if it is not there")
    parser.add_argument("--output", default="output")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--resume", help="a checkpoint to continue from")
    parser.add_argument("--checkpoint_every", type=int, default=50, help="steps")
    parser.add_argument("--log_every", type=int, default=50, help="steps")
    parser.add_argument("--windows", type=int, help="use so many for training; default all")
    parser.add_argument("--labelled", type=float, default=0.25, help="share with labels")
    parser.add_argument("--patch_channels", type=int, default=4)
    parser.add_argument("--patch_samples", type=int, default=32)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--pretrain_epochs", type=int, default=20)
    parser.add_argument("--finetune_epochs", type=int, default=30)
    parser.add_argument("--learning_rate", type=float, default=5e-3)
    return parser.parse_args()


def main():
    args = parse_arguments()
    torch.manual_seed(args.seed)
    train, held_out = load_signals(args)
    labelled = TensorDataset(*train[: int(args.labelled * len(train))])
    model = SignalModel(*train.tensors[0].shape[1:], args).to(args.device)
    parameters = sum(weights.numel() for weights in model.parameters())
    print(f"{len(train)} windows, {len(labelled)} labelled, {parameters} parameters", flush=True)

    pretrain_steps = args.pretrain_epochs * (len(train) // args.batch_size)
    steps = pretrain_steps + args.finetune_epochs * (len(labelled) // args.batch_size)
    run = {"step": 0, "pretrain": (0, pretrain_steps), "finetune": (pretrain_steps, steps)}
    run |= {"pretraining": None, "optimizer": None}
    if args.resume:
        checkpoint = torch.load(args.resume, map_location="cpu", weights_only=True)
        model.load_state_dict(checkpoint["model"])
        torch.set_rng_state(checkpoint["random"])
        run |= {key: checkpoint[key] for key in ("step", "pretraining", "optimizer")}
        print(f"resumed from {args.resume} at step {run['step']}", flush=True)

    if run["pretraining"] is None:
        train_phase("pretrain", model, train, run, args)
        run["pretraining"] = evaluate_pretraining(model, held_out, args)
        run["optimizer"] = None  # the next phase begins with its own
        result = "loss {loss:.3f}, of predicting the mean {mean_loss:.3f}"
        print("held out:", result.format(**run["pretraining"]), flush=True)
    train_phase("finetune", model, labelled, run, args)

    heads = evaluate_heads(model, held_out, args)
    latency_ms = median_latency(model, held_out[0][0], args)
    for name, head in heads.items():
        print(f"{name}: accuracy {head['accuracy']:.3f}, majority class {head['majority']:.3f}")
    print(f"latency: {latency_ms:.2f} ms a window (median, batch 1, {args.device})")
    measure = {
        "name": "mean accuracy of two heads",
        "value": statistics.mean(head["accuracy"] for head in heads.values()),
        "baseline": statistics.mean(head["majority"] for head in heads.values()),
        "baseline_is": "always naming the commonest class of the held-out windows",
        "margin": 0.2,
        "higher_is_better": True,
    }
    output = Path(args.output)
    save(model.state_dict(), output / "model.pt")
    metadata = {
        "parameters": parameters,
        "steps": run["step"],
        "arguments": vars(args),
        "measure": measure,
        "heads": heads,
        "pretraining": run["pretraining"],
        "latency_ms": latency_ms,
    }
    temporary = output / "metadata.json.tmp"
    temporary.write_text(json.dumps(metadata, indent=2) + "\n")
    temporary.replace(output / "metadata.json")
    print(
        f"done: {measure['name']} {measure['value']:.3f} on held-out data; "
        f"trivial baseline {measure['baseline']:.3f}"
    )


if __name__ == "__main__":
    main()
