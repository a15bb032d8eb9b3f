"""What CI and development install is locked with hashes, and covers pyproject.toml."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

HERE = Path(__file__).parents[2]
LOCKED = re.compile(r"^([a-z0-9][a-z0-9.-]*)==(\S+?)(?: ; [^\\]*)? \\$", re.MULTILINE)


def test_every_dependency_is_locked_at_a_version_that_is_allowed() -> None:
    project = tomllib.loads((HERE / "pyproject.toml").read_text())
    groups = project["dependency-groups"]
    wanted = [each for group in groups.values() for each in group if isinstance(each, str)]
    command = tomllib.loads((HERE / "packages" / "rocsteady" / "pyproject.toml").read_text())
    theirs = command["project"]["dependencies"]
    wanted += [each for each in theirs if not each.startswith("rocsteady-")]
    text = (HERE / ".ci" / "requirements-dev.txt").read_text()
    locked: dict[str, list[str]] = {}
    for name, version in LOCKED.findall(text):
        locked.setdefault(canonicalize_name(name), []).append(version)

    missing = [
        each
        for each in map(Requirement, wanted)
        if not any(each.specifier.contains(v) for v in locked.get(canonicalize_name(each.name), []))
    ]

    assert missing == [], "nox -s lock"
    assert text.count("--hash=sha256:") > len(locked)
    assert "://" not in text
