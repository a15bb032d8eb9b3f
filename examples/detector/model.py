"""The network, and the images as it sees them."""

import math

import numpy as np
import torch
from images import augment, cut, read_png
from torch import nn
from torch.nn import functional
from torch.utils.data import Dataset

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


def boxes_of(output, least=0.4):
    """Turn what the network says of one image into boxes: score, class, place; the surest first."""
    score = output[0].sigmoid()
    peaks = (score == functional.max_pool2d(score[None], 3, 1, 1)[0]) & (score > least)
    boxes = []
    for row, column in peaks.nonzero().tolist():
        x, y = (output[1:3, row, column] + torch.tensor([column, row])).tolist()
        width, height = output[3:5, row, column].clamp(max=3).exp().tolist()
        box = [x - width / 2, y - height / 2, x + width / 2, y + height / 2]
        kind = int(output[5:, row, column].argmax())
        boxes.append((float(score[row, column]), kind, *(side / GRID for side in box)))
    return sorted(boxes, reverse=True)
