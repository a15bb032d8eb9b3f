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
    locks = ("requirements-dev.txt", "requirements-release.txt")
    text = "".join((HERE / ".ci" / name).read_text() for name in locks)
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


INSTALLS = re.compile(r"\bpip install (.*)|\b(?:pipx|uv tool) install (.*)")
PUBLISHED = "published.yml"  # installs what is published, as users do


def test_workflows_install_what_is_locked_and_nothing_where_they_may_write() -> None:
    folder = HERE / ".github" / "workflows"
    texts = {path.name: path.read_text() for path in folder.glob("*.yml")}
    jobs = [job for text in texts.values() for job in re.split(r"\n  (?=[a-z-]+:)", text)]
    unlocked = [
        found[0]
        for name, text in texts.items()
        for found in INSTALLS.finditer(text)
        if name != PUBLISHED
        if not re.search(r"--require-hashes -r \.ci/requirements-|--no-deps -e", found[0])
    ]

    assert len(texts) > 3
    assert unlocked == []
    writing = [job for job in jobs if re.search(r"^ +[a-z-]+: write", job, re.MULTILINE)]
    assert len(writing) > 2
    assert [job for job in writing if INSTALLS.search(job) or "run: nox" in job] == []
