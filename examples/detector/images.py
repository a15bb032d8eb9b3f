"""PNG files, and what is done to an image before the detector sees it: numpy and zlib only."""

import struct
import zlib

import numpy as np

SIGNATURE = b"\x89PNG\r\n\x1a\n"


def write_png(path, image):
    """Write rows x columns x 3 bytes. Each row is stored as differences, whichever are smaller."""
    across, down = image.copy(), image.copy()
    across[:, 1:] -= image[:, :-1]
    down[1:] -= image[:-1]
    rows = []
    for left, up in zip(across, down, strict=True):
        better = abs(left.view(np.int8)).sum() < abs(up.view(np.int8)).sum()
        rows.append(b"\1" + left.tobytes() if better else b"\2" + up.tobytes())
    height, width = image.shape[:2]
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)  # 8 bits, red green blue
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(b"".join(rows))), (b"IEND", b""))
    with path.open("wb") as stream:
        stream.write(SIGNATURE)
        for name, content in chunks:
            stream.write(struct.pack(">I", len(content)) + name + content)
            stream.write(struct.pack(">I", zlib.crc32(name + content)))


def read_png(path):
    """Read what write_png wrote; of the kinds of rows that PNG has, the first three."""
    content = path.read_bytes()
    place, packed = len(SIGNATURE), b""
    while place < len(content):
        length, name = struct.unpack_from(">I4s", content, place)
        chunk = content[place + 8 : place + 8 + length]
        if name == b"IHDR":
            width, height = struct.unpack_from(">II", chunk)
        elif name == b"IDAT":
            packed += chunk
        place += length + 12
    rows = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(height, 1 + width * 3)
    image = np.empty((height, width, 3), np.uint8)
    above = np.zeros((width, 3), np.uint8)
    for number, row in enumerate(rows):
        line = row[1:].reshape(width, 3)
        if row[0] == 1:
            line = np.cumsum(line, axis=0, dtype=np.uint8)
        elif row[0] == 2:
            line = line + above
        elif row[0] != 0:
            raise ValueError(f"{path}: rows of kind {row[0]} are not read here")
        image[number] = above = line
    return image


def cut(image, boxes, corner, side, size):
    """Cut a square out of a square image and scale it. Boxes in pixels become parts of 1."""
    at = (np.arange(size) + 0.5) * side / size - 0.5
    x, x_next, x_part = _neighbours(corner[0] + at, len(image))
    y, y_next, y_part = _neighbours(corner[1] + at, len(image))
    y_part, x_part = y_part[:, None, None], x_part[:, None]
    lines = image[y] * (1 - y_part) + image[y_next] * y_part
    scaled = lines[:, x] * (1 - x_part) + lines[:, x_next] * x_part
    kinds, places = boxes[:, :1], (boxes[:, 1:] - np.tile(corner, 2)) / side
    centres = (places[:, :2] + places[:, 2:]) / 2
    inside = ((centres > 0) & (centres < 1)).all(axis=1)
    return scaled, np.hstack([kinds, places.clip(0, 1)])[inside]


def augment(image, boxes, size, rng):
    """Cut, flip, brighten or darken, and add noise, as the random numbers say."""
    side = len(image) * rng.uniform(0.7, 1.0)
    image, boxes = cut(image, boxes, rng.uniform(0, len(image) - side, 2), side, size)
    if rng.random() < 0.5:
        image = image[:, ::-1]
        boxes[:, [1, 3]] = 1 - boxes[:, [3, 1]]
    noise = rng.standard_normal(image.shape, dtype=np.float32)
    return image * np.float32(rng.uniform(0.7, 1.3)) + 6 * noise, boxes


def _neighbours(places, length):
    places = places.clip(0, length - 1)
    first = places.astype(int)
    return first, np.minimum(first + 1, length - 1), (places - first).astype(np.float32)
