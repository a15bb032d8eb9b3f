"""What a script imports, at the versions that are installed where its trials ran.

For projects without a requirements.txt. Nothing is imported or run: the files say it all.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import Distribution, distributions
from pathlib import Path

from rocsteady_train.untrusted_file import read_regular

FILE = "rocsteady-requirements.txt"
SCRIPT_LIMIT = 4 * 1024 * 1024  # bytes
# A place brings its own torch, for its own GPU, and rocsteady is installed beside it.
LEFT_OUT = {"torch", "torchvision", "torchaudio", "triton", "rocsteady"}


def pins(folder: Path, site_packages: Sequence[str]) -> str:
    """Return the text of a requirements file for the Python files of a folder; "" for none."""
    wanted = set(_imported(folder)) - LEFT_OUT - set(sys.stdlib_module_names)
    wanted -= {path.stem for path in folder.iterdir()}  # the project's own
    found = {
        f"{each.name}=={each.version.partition('+')[0]}"
        for each in distributions(path=list(site_packages))
        if each.name.lower() not in LEFT_OUT and wanted & _provided(each)
    }
    return "".join(f"{line}\n" for line in sorted(found, key=str.lower))


def _imported(folder: Path) -> Iterator[str]:
    for path in sorted(folder.glob("*.py")):
        try:
            tree = ast.parse(read_regular(path, SCRIPT_LIMIT))
        except (OSError, SyntaxError, ValueError, RecursionError):
            continue  # of another Python, or not to be read: the others count
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                yield from (name.name.partition(".")[0] for name in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield node.module.partition(".")[0]


def _provided(distribution: Distribution) -> set[str]:
    files = distribution.files or ()
    return {file.parts[0].partition(".")[0] for file in files if file.suffix in (".py", ".so")}
