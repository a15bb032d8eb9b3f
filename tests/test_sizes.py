"""Functions, constructors and rooms stay small enough to be read at once."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "rocsteady"
MOST_LINES = 60
MOST_PARAMETERS = 8
MOST_FILES, MOST_ROOM_LINES = 30, 4000  # of a room; the files of its own folder, the lines of all
SPECIAL = {"inside"}  # stands for itself in the user's interpreter
LARGER = {("training/loop.py", 10)}  # what a training script may set, each by name


def functions() -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield path.relative_to(SOURCE).as_posix(), node


def test_no_function_has_more_than_60_lines() -> None:
    lines = {
        f"{path}:{node.name}": (node.end_lineno or node.lineno) - node.lineno + 1
        for path, node in functions()
    }

    assert {name: count for name, count in lines.items() if count > MOST_LINES} == {}
    assert len(lines) > 1000  # they were found


def test_no_constructor_has_more_than_8_parameters() -> None:
    parameters = {
        (path, len([*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]) - 1)
        for path, node in functions()
        if node.name == "__init__"
    }

    assert {(path, count) for path, count in parameters if count > MOST_PARAMETERS} == LARGER


def test_no_room_has_more_than_30_files_or_4000_lines() -> None:
    rooms = [path for path in SOURCE.iterdir() if (path / "__init__.py").exists()]
    sizes = {
        room.name: (
            len(list(room.glob("*.py"))),
            sum(len(path.read_text(encoding="utf-8").splitlines()) for path in room.rglob("*.py")),
        )
        for room in rooms
        if room.name not in SPECIAL
    }

    assert {
        name: (files, lines)
        for name, (files, lines) in sizes.items()
        if files > MOST_FILES or lines > MOST_ROOM_LINES
    } == {}
    assert len(sizes) > 20  # they were found
