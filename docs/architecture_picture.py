"""Draws the rooms from the import contracts in pyproject.toml: docs/pictures/architecture.svg.

A test compares the picture that is kept with a new one, so it cannot say anything else than CI
checks.
"""

from __future__ import annotations

from pathlib import Path
from xml.sax.saxutils import escape

from rocsteady.toml import parse_toml

HERE = Path(__file__).parent
PICTURE = HERE / "pictures" / "architecture.svg"
WIDTH, LABEL, ROW, GAP = 960, 34, 44, 8  # pixels
BESIDE = ("training", "integrations", "inside")
# rooms that act; the others only compute
ACTS = ("cli", "terminal", "workflows", "supervisor", "attempts", "host")
STYLE = (
    "text{font:14px sans-serif;fill:#1f2328}.n{fill:#656d76}"
    "rect{fill:#f6f8fa;stroke:#8c959f}rect.a{fill:#fff1e5;stroke:#bc4c00}"
    "rect.b{fill:#ddf4ff;stroke:#0969da}"
)


def layers() -> list[list[str]]:
    """Return the rooms of each layer, the highest first, as import-linter reads them."""
    project = parse_toml((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    house = next(each for each in contracts if each["id"] == "house")
    return [[room.strip() for room in layer.split("|")] for layer in house["layers"]]


def lines_of(rooms: list[str], most: int = 6) -> list[list[str]]:
    """Break a layer with many modules into several lines."""
    return [rooms[at : at + most] for at in range(0, len(rooms), most)]


def drawn() -> str:
    """Return the picture as SVG."""
    boxes: list[str] = []
    top = GAP
    floors = layers()
    for number, rooms in enumerate(floors):
        boxes.append(f'<text class="n" x="8" y="{top + 27}">{len(floors) - number}</text>')
        for line in lines_of(rooms):
            boxes += _row(line, top)
            top += ROW
    top += ROW // 2
    boxes.append(
        f'<text class="n" x="{LABEL}" y="{top + 10}">'
        "In the interpreter of the training script (the only rooms that import torch):</text>"
    )
    boxes += _row(list(BESIDE), top + 20, kind="b")
    height = top + 20 + ROW + GAP
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">\n'
        "<title>The rooms of rocsteady. Imports go down only.</title>\n"
        f"<style>{STYLE}</style>\n" + "\n".join(boxes) + "\n</svg>\n"
    )


def _row(rooms: list[str], top: int, kind: str = "") -> list[str]:
    """Draw the rooms of one line side by side."""
    each = (WIDTH - LABEL - GAP * len(rooms)) / len(rooms)
    made = []
    for place, room in enumerate(rooms):
        left = LABEL + place * (each + GAP)
        style = kind or ("a" if room in ACTS else "")
        made.append(
            f'<rect class="{style}" x="{left:.0f}" y="{top}" width="{each:.0f}"'
            f' height="{ROW - GAP}" rx="4"/>'
            f'<text x="{left + each / 2:.0f}" y="{top + 23}" text-anchor="middle">'
            f"{escape(room)}</text>"
        )
    return made


if __name__ == "__main__":
    PICTURE.write_text(drawn(), encoding="utf-8", newline="\n")
