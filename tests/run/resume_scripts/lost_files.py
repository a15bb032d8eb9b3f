"""List the files of an undisturbed run that a disturbed one does not have with the same content.

    python lost_files.py UNDISTURBED DISTURBED

A name may contain a time. A text may have more lines, and the rest of it may be in a copy that
rocsteady kept.
"""

from __future__ import annotations

import json
import pickle
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

TIME = re.compile(r"[0-9]{8}-[0-9]{6}|(?<=version_)[0-9]+")


def files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Return each file with its name; that of a copy is the name of what it is a copy of."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield TIME.sub("TIME", str(path.relative_to(folder))), path


def content(path: Path) -> object:
    """Return what a file contains, as far as it can be compared."""
    if path.name == ".metadata":  # of torch.distributed.checkpoint; the order in it varies
        metadata = pickle.loads(path.read_bytes())  # noqa: S301 - of our own scripts
        return sorted(map(str, metadata.state_dict_metadata.items()))
    for read in (lambda: torch.load(path, weights_only=False), path.read_text):
        try:
            return read()
        except (RuntimeError, OSError, EOFError, ValueError, pickle.UnpicklingError):
            continue
    return path.read_bytes()


def same(one: object, other: object) -> bool:
    """Compare nested values with tensors in them."""
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and torch.equal(one, other)
    if isinstance(one, dict):
        return (
            isinstance(other, dict)
            and one.keys() == other.keys()
            and all(same(one[key], other[key]) for key in one)
        )
    if isinstance(one, list | tuple):
        return (
            isinstance(other, list | tuple)
            and len(one) == len(other)
            and all(map(same, one, other))
        )
    return bool(one == other)


def main() -> None:
    """Print the names as JSON."""
    reference, folder = map(Path, sys.argv[1:])
    there = list(files(folder))
    lost = []
    for name, path in files(reference):
        expected = content(path)
        found = [
            content(other)
            for what, other in there
            if what == name or (what.startswith(".rocsteady") and other.name == path.name)
        ]
        texts = [text for text in found if isinstance(text, str)]
        lines = {line for text in texts for line in text.splitlines()}
        whole = any(same(expected, one) for one in found)
        in_parts = isinstance(expected, str) and lines.issuperset(expected.splitlines())
        if not whole and not in_parts:
            lost.append(name)
    print(json.dumps(lost))


main()
