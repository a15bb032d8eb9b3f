"""The man pages say what the help says."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.conftest import Expected

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


def test_the_pages_are_as_the_help_is(tool: ModuleType, expected: Expected) -> None:
    pages = tool.pages()

    assert {path.name for path in tool.FOLDER.iterdir()} == set(pages)
    for name, text in pages.items():
        expected(tool.FOLDER / name, text)


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
