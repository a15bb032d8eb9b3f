"""Train a small one-stage object detector on drawn images. Make them first: python make_data.py."""

import argparse
import json
import math
import os
import sys
import time
from pathlib import Path

import numpy as np
import torch
from images import augment, cut, read_png
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

SIZE = 96  # pixels, what the network sees
CELL = 8  # pixels; each cell answers for the objects whose centre is in it
GRID = SIZE // CELL


class Drawings(Dataset):
    """Decode, augment and label images. Its work is done in the loader's worker processes."""

    def __init__(self, folder, entries, seed=None):
        self.folder = folder
        self.entries = entries
        self.seed = seed  # numbers that augment each image, together with its own; None: as it is

    def __len__(self):
        return len(self.entries)

    def __getitem__(self, number):
        entry = self.entries[number]
        image = read_png(self.folder / entry["file"])
        boxes = np.array(entry["boxes"], dtype=np.float32)
        if self.seed is None:
            image, boxes = cut(image, boxes, (0, 0), len(image), SIZE)
        else:
            image, boxes = augment(image, boxes, SIZE, np.random.default_rng([*self.seed, number]))
        image = image.clip(0, 255).astype(np.uint8)
        return torch.from_numpy(image).permute(2, 0, 1), torch.from_numpy(cells(boxes))


def cells(boxes):
    """Say of each cell: is there an object; its centre, log of its size (in cells); its class."""
    target = np.zeros((6, GRID, GRID), np.float32)
    for kind, left, top, right, bottom in boxes:
        x, y = (left + right) / 2 * GRID, (top + bottom) / 2 * GRID
        width, height = (right - left) * GRID, (bottom - top) * GRID
        column, row = min(int(x), GRID - 1), min(int(y), GRID - 1)
        target[:, row, column] = (1, x - column, y - row, math.log(width), math.log(height), kind)
    return target


def block(inputs, outputs, stride):
    convolution = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU())


def detector(width, classes):
    """Give for each cell: object or not, 4 numbers of its box, a number for each class."""
    head = nn.Conv2d(4 * width, 5 + classes, 1)
    nn.init.constant_(head.bias, 0)
    nn.init.constant_(head.bias[:1], -4)  # most cells have no object
    return nn.Sequential(
        block(3, width, 2),
        block(width, 2 * width, 2),
        block(2 * width, 4 * width, 2),
        block(4 * width, 4 * width, 1),
        block(4 * width, 4 * width, 1),
        head,
    )


def loss_of(output, target):
    there = target[:, 0] > 0
    count = there.sum().clamp(min=1)
    found = functional.binary_cross_entropy_with_logits(output[:, 0], target[:, 0], reduction="sum")
    output, target = output.permute(0, 2, 3, 1)[there], target.permute(0, 2, 3, 1)[there]
    box = functional.smooth_l1_loss(output[:, 1:5], target[:, 1:5], reduction="sum")
    kind = functional.cross_entropy(output[:, 5:], target[:, 5].long(), reduction="sum")
    return (found + box + kind) / count


def boxes_of(output):
    """Turn what the network says of one image into boxes, the surest first."""
    score = output[0].sigmoid()
    peaks = (score == functional.max_pool2d(score[None], 3, 1, 1)[0]) & (score > 0.4)
    boxes = []
    for row, column in peaks.nonzero().tolist():
        x, y = (output[1:3, row, column] + torch.tensor([column, row])).tolist()
        width, height = output[3:5, row, column].clamp(max=3).exp().tolist()
        box = [x - width / 2, y - height / 2, x + width / 2, y + height / 2]
        kind = int(output[5:, row, column].argmax())
        boxes.append((float(score[row, column]), kind, *(side / GRID for side in box)))
    return [box[1:] for box in sorted(boxes, reverse=True)]


def overlap(a, b):
    """Intersection over union."""
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    both = max(width, 0) * max(height, 0)
    return both / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both)


def f1(predicted, true):
    """Score boxes of many images: right are those of the right class that overlap by half."""
    right = 0
    for guesses, boxes in zip(predicted, true, strict=True):
        left = list(boxes)
        for kind, *guess in guesses:
            fits = [box for box in left if box[0] == kind and overlap(guess, box[1:]) >= 0.5]
            if fits:
                right += 1
                left.remove(max(fits, key=lambda box: overlap(guess, box[1:])))
    return 2 * right / max(sum(map(len, predicted)) + sum(map(len, true)), 1)


def true_boxes(entries, side):
    return [[(kind, *(x / side for x in box)) for kind, *box in e["boxes"]] for e in entries]


def measure(model, args, labels):
    """F1 on the held-out images."""
    entries = labels["held_out"]
    loader = DataLoader(Drawings(args.data, entries), args.batch_size, num_workers=args.workers)
    model.eval()
    with torch.no_grad():
        outputs = torch.cat([model(ready(images, args.device)).cpu() for images, _ in loader])
    model.train()
    return f1([boxes_of(output) for output in outputs], true_boxes(entries, labels["side"]))


def baseline(labels):
    """F1 without looking: the mean box of the commonest class at 4 x 4 places of each image."""
    boxes = np.concatenate(true_boxes(labels["train"], labels["side"]))
    kind = np.bincount(boxes[:, 0].astype(int)).argmax()
    w, h = (boxes[:, 3:] - boxes[:, 1:3]).mean(axis=0) / 2
    at = np.linspace(0.2, 0.8, 4)
    guesses = [(kind, x - w, y - h, x + w, y + h) for x in at for y in at]
    held_out = true_boxes(labels["held_out"], labels["side"])
    return f1([guesses] * len(held_out), held_out)


def ready(images, device):
    return images.to(device, non_blocking=True).float() / 255


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


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
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
            if step % args.checkpoint_every == 0 or step == total:
                save_checkpoint(args.output / "checkpoints", step, parts)
        if args.val:
            value = measure(model, args, labels)
            print(f"epoch {epoch + 1}/{args.epochs} F1 {value:.3f}", flush=True)

    value, trivial = measure(model, args, labels), baseline(labels)
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
    }
    args.output.mkdir(parents=True, exist_ok=True)
    replace(args.output / "model.pt", lambda file: torch.save(model.state_dict(), file))
    text = json.dumps(metadata, indent=2) + "\n"
    replace(args.output / "metadata.json", lambda file: file.write_text(text))
    print(f"done: F1 at IoU 0.5 {value:.3f} on held-out data; trivial baseline {trivial:.3f}")


if __name__ == "__main__":
    main()
