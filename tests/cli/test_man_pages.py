"""The man pages say what the help says."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    path = ROOT / "tools" / "man_pages.py"
    spec = importlib.util.spec_from_file_location("man_pages", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pages_are_as_the_help_is(tool: ModuleType) -> None:
    kept = {path.name: path.read_text(encoding="utf-8") for path in tool.FOLDER.iterdir()}

    assert kept == tool.pages(), f"{Path(sys.executable).name} tools/man_pages.py"


GROFF = shutil.which("groff")


@pytest.mark.skipif(GROFF is None, reason="needs groff")
def test_a_page_can_be_read(tool: ModuleType) -> None:
    for path in tool.FOLDER.iterdir():
        drawn = subprocess.run(
            [str(GROFF), "-man", "-Tascii", "-ww", str(path)],
            capture_output=True,
            check=True,
            text=True,
        )
        assert drawn.stderr == ""
