"""Train a small one-stage object detector on drawn images. Make them first: python make_data.py."""

import argparse
import json
import os
import sys
import time
from pathlib import Path

import numpy as np
import torch
from evaluate import baseline, measure, ready
from model import Drawings, detector
from torch.nn import functional
from torch.utils.data import DataLoader

CURVE_EVERY = 10  # steps
PRESETS = {
    "small": {"images": 200, "epochs": 2, "batch_size": 8, "width": 8, "checkpoint_every": 20},
    "note": {"images": 5000, "epochs": 100, "width": 64, "workers": 4, "checkpoint_every": 200},
}


def loss_of(output, target):
    there = target[:, 0] > 0
    count = there.sum().clamp(min=1)
    found = functional.binary_cross_entropy_with_logits(output[:, 0], target[:, 0], reduction="sum")
    output, target = output.permute(0, 2, 3, 1)[there], target.permute(0, 2, 3, 1)[there]
    box = functional.smooth_l1_loss(output[:, 1:5], target[:, 1:5], reduction="sum")
    kind = functional.cross_entropy(output[:, 5:], target[:, 5].long(), reduction="sum")
    return (found + box + kind) / count


class Bar:
    """A progress bar on stderr: redrawn in a terminal, else a line every few seconds."""

    def __init__(self, title, done, total):
        self.title, self.first, self.total = title, done, total
        self.started, self.drawn = time.monotonic(), 0.0
        self.terminal = sys.stderr.isatty()

    def show(self, done, loss):
        now = time.monotonic()
        if now - self.drawn < (0.1 if self.terminal else 2) and done < self.total:
            return
        self.drawn = now
        spent = now - self.started
        rate = (done - self.first) / spent
        left = (self.total - done) / rate
        filled = "#" * (10 * done // self.total)
        clock, remaining = (f"{int(t) // 60:02d}:{int(t) % 60:02d}" for t in (spent, left))
        line = (
            f"{self.title}: {100 * done // self.total:3d}%|{filled:<10}| {done}/{self.total} "
            f"[{clock}<{remaining}, {rate:.1f}it/s, loss={loss.item():.2f}]"
        )
        if self.terminal:
            line = f"\r{line:<79}"  # covers what was drawn before
        redrawn = self.terminal and done < self.total
        print(line, end="" if redrawn else "\n", file=sys.stderr, flush=True)


def replace(path, write):
    """Write a file under another name first, so that what bears its name is always whole."""
    unfinished = path.with_name(path.name + ".unfinished")
    write(unfinished)
    unfinished.replace(path)


def save_checkpoint(folder, step, parts):
    """Save all that is needed to go on, and keep the newest three.

    No random state: order and augmentation come from the seed, the epoch and the image.
    """
    state = {name: part.state_dict() for name, part in parts.items()}
    folder.mkdir(parents=True, exist_ok=True)
    replace(folder / f"step-{step:06d}.pt", lambda file: torch.save({"step": step, **state}, file))
    for old in sorted(folder.glob("*.pt"), key=os.path.getmtime)[:-3]:
        old.unlink()


def in_words(found):
    return ", ".join(f"{name} {value:.3f}" for name, value in found.items())


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", choices=PRESETS, help="sizes; each can still be given")
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--output", type=Path, default=Path("output"))
    parser.add_argument("--images", type=int, help="learn from the first so many; default all")
    parser.add_argument("--epochs", type=int, default=16)
    parser.add_argument("--batch_size", type=int, default=16)
    parser.add_argument("--width", type=int, default=16, help="channels of the first layer")
    parser.add_argument("--learning_rate", type=float, default=6e-3)
    parser.add_argument("--workers", type=int, default=2, help="processes that load images")
    parser.add_argument("--val", action="store_true", help="measure after each epoch as well")
    parser.add_argument("--checkpoint_every", type=int, default=50, help="steps")
    parser.add_argument("--resume", type=Path, help="a checkpoint to go on from")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.set_defaults(**PRESETS.get(parser.parse_known_args()[0].preset, {}))
    return parser.parse_args()


def main():
    args = arguments()
    labels = json.loads((args.data / "labels.json").read_text())
    entries = labels["train"][: args.images]
    torch.manual_seed(args.seed)
    torch.set_num_threads(max(1, torch.get_num_threads() - args.workers))  # they need cores too
    model = detector(args.width, len(labels["classes"])).to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate)
    steps_per_epoch = len(entries) // args.batch_size
    total = args.epochs * steps_per_epoch
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.learning_rate, total)
    parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
    step = 0
    if args.resume:
        checkpoint = torch.load(args.resume, map_location=args.device, weights_only=True)
        step = checkpoint["step"]
        for name, part in parts.items():
            part.load_state_dict(checkpoint[name])
        print(f"resumed at step {step}", flush=True)

    args.output.mkdir(parents=True, exist_ok=True)
    curve = (args.output / "curve.csv").open("a", buffering=1)
    while step < total:
        epoch, done = divmod(step, steps_per_epoch)
        # The order is the epoch's own, so a resumed run leaves out what it has seen, unloaded.
        order = np.random.default_rng([args.seed, epoch]).permutation(len(entries))
        loader = DataLoader(
            Drawings(args.data, entries, seed=(args.seed, epoch)),
            args.batch_size,
            sampler=order[done * args.batch_size :].tolist(),
            drop_last=True,
            num_workers=args.workers,
            pin_memory=args.device != "cpu",
        )
        bar = Bar(f"epoch {epoch + 1}/{args.epochs}", done, steps_per_epoch)
        for number, (images, targets) in enumerate(loader, done + 1):
            loss = loss_of(model(ready(images, args.device)), targets.to(args.device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            step += 1
            bar.show(number, loss)
            if step % CURVE_EVERY == 0:
                curve.write(f"{step},{loss.item():.4f}\n")
            if step % args.checkpoint_every == 0 or step == total:
                save_checkpoint(args.output / "checkpoints", step, parts)
        if args.val:
            found = in_words(measure(model, args, labels))
            print(f"epoch {epoch + 1}/{args.epochs} {found}", flush=True)
    curve.close()

    found, trivial = measure(model, args, labels), baseline(labels)
    value = found["f1"]
    print(in_words(found))
    metadata = {
        "parameters": sum(p.numel() for p in model.parameters()),
        "steps": step,
        "arguments": {name: str(a) if isinstance(a, Path) else a for name, a in vars(args).items()},
        "measure": {
            "name": "F1 at IoU 0.5",
            "value": value,
            "baseline": trivial,
            "baseline_is": "the mean box of the commonest class at 4 x 4 places of every image",
            "margin": 0.2,
            "higher_is_better": True,
        },
        **found,
    }
    replace(args.output / "model.pt", lambda file: torch.save(model.state_dict(), file))
    text = json.dumps(metadata, indent=2) + "\n"
    replace(args.output / "metadata.json", lambda file: file.write_text(text))
    print(f"done: F1 at IoU 0.5 {value:.3f} on held-out data; trivial baseline {trivial:.3f}")


if __name__ == "__main__":
    main()
