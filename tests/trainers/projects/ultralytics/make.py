"""Draw squares to find."""

import random
from pathlib import Path

from PIL import Image, ImageDraw

random.seed(0)
for part, count in (("train", 48), ("val", 12)):
    for kind in ("images", "labels"):
        Path("data", kind, part).mkdir(parents=True, exist_ok=True)
    for number in range(count):
        image = Image.new("RGB", (64, 64), (30, 30, 30))
        x, y, size = random.randint(2, 40), random.randint(2, 40), random.randint(10, 20)
        ImageDraw.Draw(image).rectangle([x, y, x + size, y + size], fill=(220, 60, 60))
        image.save(f"data/images/{part}/{number}.png")
        box = [(x + size / 2) / 64, (y + size / 2) / 64, size / 64, size / 64]
        Path(f"data/labels/{part}/{number}.txt").write_text("0 " + " ".join(map(str, box)))
Path("shapes.yaml").write_text(f"path: {Path('data').resolve()}\ntrain: images/train\nval: images/val\nnames: {{0: square}}\n")
