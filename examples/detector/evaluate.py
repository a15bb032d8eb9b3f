"""Measure a trained detector on the held-out images: F1, and mAP as detectors are compared."""

import argparse
import json
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from model import Drawings, boxes_of, detector
from torch.utils.data import DataLoader

LEAST = 0.01  # score of a box that mAP still looks at
THRESHOLDS = np.arange(0.5, 1.0, 0.05)  # of the overlap


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


def average_precision(guesses, true, kind, threshold):
    """Return the area below precision over recall, for one class and one overlap."""
    left = [[box for box in boxes if box[0] == kind] for boxes in true]
    count = sum(map(len, left))
    found = sorted(
        ((score, image, box) for image, boxes in enumerate(guesses)
         for score, guessed, *box in boxes if guessed == kind),
        reverse=True,
    )  # fmt: skip
    right = np.zeros(len(found))
    for number, (_, image, box) in enumerate(found):
        best = max(left[image], key=lambda other: overlap(box, other[1:]), default=None)
        if best is not None and overlap(box, best[1:]) >= threshold:
            left[image].remove(best)
            right[number] = 1
    recall = np.cumsum(right) / max(count, 1)
    precision = np.cumsum(right) / np.arange(1, len(found) + 1)
    best_later = np.maximum.accumulate(precision[::-1])[::-1]
    return float((np.diff(recall, prepend=0.0) * best_later).sum())


def mean_average_precision(guesses, true):
    """Return mAP at an overlap of 0.5, and the mean over 0.5 to 0.95."""
    kinds = sorted({box[0] for boxes in true for box in boxes})
    at = [
        np.mean([average_precision(guesses, true, kind, threshold) for kind in kinds])
        for threshold in THRESHOLDS
    ]
    return {"map50": float(at[0]), "map50_95": float(np.mean(at))}


def measure(model, args, labels):
    """Return F1, mAP 0.5 and mAP 0.5:0.95 on the held-out images."""
    entries = labels["held_out"]
    loader = DataLoader(Drawings(args.data, entries), args.batch_size, num_workers=args.workers)
    model.eval()
    with torch.no_grad():
        outputs = torch.cat([model(ready(images, args.device)).cpu() for images, _ in loader])
    model.train()
    true = true_boxes(entries, labels["side"])
    sure = [[box[1:] for box in boxes_of(output)] for output in outputs]
    guesses = [boxes_of(output, LEAST) for output in outputs]
    return {"f1": f1(sure, true), **mean_average_precision(guesses, true)}


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


def load(output):
    """Return the trained model of a folder, its arguments and what was written about it."""
    metadata = json.loads((output / "metadata.json").read_text())
    args = SimpleNamespace(**{**metadata["arguments"], "device": "cpu", "workers": 0})
    args.data = Path(args.data)
    labels = json.loads((args.data / "labels.json").read_text())
    model = detector(args.width, len(labels["classes"]))
    model.load_state_dict(torch.load(output / "model.pt", weights_only=True))
    return model.eval(), args, labels


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("output"))
    output = parser.parse_args().output
    model, args, labels = load(output)
    began = time.perf_counter()
    found = measure(model, args, labels)
    images = len(labels["held_out"])
    print(
        f"F1 {found['f1']:.3f}, mAP 0.5 {found['map50']:.3f}, mAP 0.5:0.95 "
        f"{found['map50_95']:.3f}; {1000 * (time.perf_counter() - began) / images:.1f} ms an image"
    )
    try:
        from plots import draw  # noqa: PLC0415 - only this needs matplotlib
    except ImportError:
        print("no plots: pip install matplotlib")
    else:
        draw(output, model, args, labels)


if __name__ == "__main__":
    main()
