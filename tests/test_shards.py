"""Every slow test is in one shard of ``nox -s full``, and a workflow runs every shard."""

from __future__ import annotations

import ast
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
NIGHTLY = ROOT / ".github" / "workflows" / "nightly.yml"


def shards() -> dict[str, tuple[str, ...]]:
    """Read the shards of the noxfile; not everybody who tests has nox."""
    for node in ast.parse((ROOT / "noxfile.py").read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "SHARDS":
            return dict(ast.literal_eval(node.value))
    raise AssertionError


def test_every_file_with_slow_tests_is_in_one_shard() -> None:
    tests = Path(__file__).parent
    found: dict[Path, list[str]] = {
        path: [] for path in tests.rglob("test_*.py") if "pytest.mark.slow" in path.read_text()
    }
    for name, patterns in shards().items():
        for place in (place for pattern in patterns for place in tests.glob(pattern)):
            for path, names in found.items():
                if place in (path, *path.parents):
                    names.append(name)

    wrong = {str(path): names for path, names in found.items() if len(names) != 1}
    assert wrong == {}


def test_the_nightly_workflow_runs_every_shard() -> None:
    jobs = yaml.safe_load(NIGHTLY.read_text())["jobs"]

    sessions = {f"full({name})" for name in shards()} | {"hostile"}
    assert set(jobs["session"]["strategy"]["matrix"]["session"]) == sessions
