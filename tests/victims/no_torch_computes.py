"""No torch at all, and not a word for 150 s: k-means in pure Python, then its result.

A person sees one core busy and nothing else.
"""

from __future__ import annotations

import random
import time

from knobs import lasting

Point = tuple[float, float]


def nearest(point: Point, centres: list[Point]) -> int:
    return min(
        range(len(centres)),
        key=lambda n: (point[0] - centres[n][0]) ** 2 + (point[1] - centres[n][1]) ** 2,
    )


def cluster(points: list[Point], centres: list[Point], seconds: float) -> list[Point]:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        groups: list[list[Point]] = [[] for _ in centres]
        for point in points:
            groups[nearest(point, centres)].append(point)
        centres = [
            (sum(x for x, _ in group) / len(group), sum(y for _, y in group) / len(group))
            if group
            else centre
            for group, centre in zip(groups, centres, strict=True)
        ]
    return centres


def main() -> None:
    points = [(random.random(), random.random()) for _ in range(2000)]
    centres = cluster(points, points[:10], lasting(150))
    print(f"{len(centres)} centres\nDONE", flush=True)


if __name__ == "__main__":
    main()
