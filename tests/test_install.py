"""What is installed from a checkout is called rocsteady, and goes by that name."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.ci]
OURS = ("rocsteady", "rocsteady-knowledge", "rocsteady-train")
WRITE_WHEELS = """
from pathlib import Path
from rocsteady.plan.exports.wheels import wheels
for name, content in wheels().items():
    Path(name).write_bytes(content)
"""


def test_a_checkout_is_installed_and_removed_as_rocsteady(
    tmp_path: Path, clean_python: str
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(Path(clean_python).parents[1], copy, symlinks=True)

    def done(*command: str) -> str:
        words = [str(copy / "bin" / "python"), "-I", *command]
        return subprocess.run(
            words, cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout

    def installed() -> list[str]:
        listed = json.loads(done("-m", "pip", "list", "--format=json"))
        return [each["name"] for each in listed if each["name"].startswith("rocsteady")]

    assert installed() == list(OURS)
    done("-m", "pip", "check")
    done("-c", WRITE_WHEELS)  # as an export has them, for a machine without this checkout

    done("-m", "pip", "uninstall", "--yes", "rocsteady")

    assert installed() == list(OURS[1:])
    assert not (copy / "bin" / "rocsteady").exists()
    done("-m", "pip", "uninstall", "--yes", *OURS[1:])
    wheels = [str(path) for path in tmp_path.glob("*.whl")]
    done("-m", "pip", "install", "--no-index", *wheels)
    assert installed() == list(OURS)
