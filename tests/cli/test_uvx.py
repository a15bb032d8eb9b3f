"""Under uvx, the command trains with the Python that is active, not with uv's."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest


@pytest.mark.skipif(os.name == "nt", reason="run needs Linux")
def test_python_is_that_of_the_user(tmp_path: Path) -> None:
    uvs, users = tmp_path / "uv" / "archive-v0" / "x1", tmp_path / "train"
    for folder in (uvs, users):
        venv.create(folder, with_pip=False, symlinks=True)
    script = tmp_path / "train.py"
    script.write_text("import sys; print('trains in', sys.prefix)")
    path = os.pathsep.join([str(uvs / "bin"), str(users / "bin"), "/usr/bin", "/bin"])

    done = subprocess.run(
        [str(uvs / "bin" / "python"), "-m", "rocsteady", "run", "--", "python", "train.py"],
        cwd=tmp_path,
        env={"PATH": path, "HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )

    assert f"trains in {users}" in done.stdout, done.stderr
