"""A class name has one meaning in the whole tree, and a file is named for what it contains."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "rocsteady"
SAME_MEANING = {  # one interface that different systems or frameworks implement
    "Child": {"host/posix/child.py", "host/windows_child.py"},
    "FullScreen": {"host/full_screen.py", "host/posix/full_screen.py"},
    "Session": {"host/posix/__init__.py", "host/windows.py"},
    "RocsteadyCallback": {"integrations/lightning.py", "integrations/transformers.py"},
}


def test_no_class_name_is_used_twice() -> None:
    files: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                files[node.name].append(path.relative_to(SOURCE).as_posix())

    twice = {name: set(found) for name, found in files.items() if len(found) > 1}

    assert twice == SAME_MEANING
    assert len(files) > 500  # they were found


# Participles, adverbs and words that fit anything. None says what a file contains.
VAGUE = {
    *("told", "shown", "tried", "watched", "printed", "wanted", "recorded", "asked", "reached"),
    *("seen", "unseen", "aside", "ahead", "here", "by_itself", "going_on", "wishes", "deed"),
    *("learning", "reading", "writing", "loading", "matching", "watching", "stopping", "ending"),
    *("compiling", "authoring", "utils", "common", "core", "helpers", "misc", "shared", "base"),
    *("files", "names", "places", "text", "size", "tree", "work", "way", "ways"),
}


def test_no_file_has_a_name_that_fits_anything() -> None:
    paths = [path.relative_to(SOURCE) for path in SOURCE.rglob("*.py")]

    assert [path.as_posix() for path in sorted(paths) if path.stem in VAGUE] == []
    assert len(paths) > 500  # they were found
