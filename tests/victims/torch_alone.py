"""A torch that is installed, without what lies beside it: one install for many environments."""

from __future__ import annotations

import subprocess
from importlib.metadata import distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PATH_FILE = "torch-alone.pth"


def link_torch(python: str, folder: Path) -> Path:
    """Link what ``pip install torch`` brought into a folder; return a file that adds it to a path.

    In site-packages, that file does what installing torch does, in no time.
    """
    find = "import sysconfig; print(sysconfig.get_path('purelib'))"
    said = subprocess.run([python, "-c", find], check=True, capture_output=True, text=True)
    installed = Path(said.stdout.strip())
    found = {canonicalize_name(each.name): each for each in distributions(path=[str(installed)])}
    wanted, linked = ["torch"], set[str]()
    while wanted:
        name = canonicalize_name(wanted.pop())
        if name in linked or name not in found:
            continue
        linked.add(name)
        for top in {file.parts[0] for file in found[name].files or ()} - {"..", "__pycache__"}:
            (folder / top).symlink_to(installed / top)
        wanted += [each.name for each in map(Requirement, found[name].requires or ()) if _is(each)]
    (folder / PATH_FILE).write_text(f"{folder}\n")
    return folder / PATH_FILE


def _is(requirement: Requirement) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": ""})
