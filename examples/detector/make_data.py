"""Draw ellipses, boxes and triangles: PNG files, and labels.json that says where they are."""

import argparse
import json
from pathlib import Path

import numpy as np
from images import write_png

CLASSES = ("ellipse", "box", "triangle")
SIDE = 128  # pixels
PRESETS = {"small": {"train": 200, "held_out": 40}, "note": {"train": 5000, "held_out": 500}}
Y, X = np.mgrid[:SIDE, :SIDE]


def place_boxes(rng):
    """Choose one to six boxes that do not touch: class, left, top, right, bottom."""
    boxes = []
    for _ in range(rng.integers(1, 7)):
        width, height = rng.integers(20, 49, 2)
        left, top = rng.integers(0, SIDE - width), rng.integers(0, SIDE - height)
        right, bottom = left + width, top + height
        if all(left > x1 or right < x0 or top > y1 or bottom < y0 for _, x0, y0, x1, y1 in boxes):
            boxes.append([int(n) for n in (rng.integers(len(CLASSES)), left, top, right, bottom)])
    return boxes


def covers(kind, x, y):
    """Say which points are in a shape that fills -1 to 1."""
    if CLASSES[kind] == "ellipse":
        return x**2 + y**2 <= 1
    if CLASSES[kind] == "box":
        return np.maximum(abs(x), abs(y)) <= 1
    return (abs(x) <= (y + 1) / 2) & (y <= 1)


def draw(boxes, rng):
    """Draw the shapes over a background that changes slowly, and noise over all."""
    slope = rng.uniform(-0.4, 0.4, (2, 3))
    image = rng.uniform(40, 160, 3) + Y[..., None] * slope[0] + X[..., None] * slope[1]
    for kind, left, top, right, bottom in boxes:
        x = (X + 0.5 - left) / (right - left) * 2 - 1
        y = (Y + 0.5 - top) / (bottom - top) * 2 - 1
        contrast = rng.choice([-1, 1], 3) * rng.uniform(25, 90, 3)
        image[covers(kind, x, y)] = image[(top + bottom) // 2, (left + right) // 2] + contrast
    return (image + rng.normal(0, 3, image.shape)).clip(0, 255).astype(np.uint8)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("data"))
    parser.add_argument("--train", type=int, default=1200, help="images to learn from")
    parser.add_argument("--held_out", type=int, default=300, help="images to measure on")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--preset", choices=PRESETS, help="sizes; each can still be given")
    parser.set_defaults(**PRESETS.get(parser.parse_known_args()[0].preset, {}))
    args = parser.parse_args()
    labels = {"classes": CLASSES, "side": SIDE}
    for part, count, stream in (("train", args.train, 0), ("held_out", args.held_out, 1)):
        (args.output / part).mkdir(parents=True, exist_ok=True)
        labels[part] = []
        for number in range(count):
            rng = np.random.default_rng([args.seed, stream, number])
            file, boxes = f"{part}/{number:06d}.png", place_boxes(rng)
            write_png(args.output / file, draw(boxes, rng))
            labels[part].append({"file": file, "boxes": boxes})
    (args.output / "labels.json").write_text(json.dumps(labels))
    print(f"{args.train} + {args.held_out} images in {args.output}")


if __name__ == "__main__":
    main()
