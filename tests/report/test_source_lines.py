"""The lines of a script around the one where it failed, read from where it is now."""

from __future__ import annotations

import os
import time
from pathlib import Path

from rocsteady.report.source_lines import script_folders, source_around


def test_the_lines_around_are_found_beside_the_script(tmp_path: Path) -> None:
    script = tmp_path / "src" / "train.py"
    script.parent.mkdir()
    script.write_text("".join(f"line {n}\n" for n in range(1, 31)))
    os.utime(script, (1.0, 1.0))
    folders = script_folders(tmp_path, ("python", "src/train.py"))

    found = source_around("train.py", 24, folders, at=time.time())

    assert found is not None
    assert [line.number for line in found.lines] == list(range(21, 28))
    assert [line.text for line in found.lines if line.blamed] == ["line 24"]
    assert not found.changed
    changed = source_around("train.py", 1, folders, at=0.0)
    assert changed is not None
    assert changed.changed


def test_what_cannot_be_found_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "short.py").write_text("x = 1\n")

    assert source_around("short.py", 9, (tmp_path,), at=0.0) is None
    assert source_around("gone.py", 1, (tmp_path,), at=0.0) is None
