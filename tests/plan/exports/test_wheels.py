"""rocsteady beside an exported file: wheels that an installer takes."""

from __future__ import annotations

import zipfile
from importlib.metadata import version
from io import BytesIO
from pathlib import Path

from rocsteady.plan.exports.export import outside
from rocsteady.plan.exports.wheels import PACKAGES, wheels


def test_there_is_a_wheel_of_each_package_with_its_data_and_its_command() -> None:
    made = wheels()

    assert len(made) == len(PACKAGES)
    assert f"rocsteady-{version('rocsteady')}-py3-none-any.whl" in made
    names = set()
    for content in made.values():
        archive = zipfile.ZipFile(BytesIO(content))
        assert archive.testzip() is None
        names |= set(archive.namelist())
    assert {
        "rocsteady/__main__.py",
        "rocsteady/plan/exports/templates/slurm.sbatch.j2",
        "rocsteady_train/inside/wire.py",
        "rocsteady_knowledge/data/wheels.toml",
        f"rocsteady-{version('rocsteady')}.dist-info/entry_points.txt",
    } <= names
    assert not any("__pycache__" in name for name in names)


def test_what_lies_outside_the_folder_is_named(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "data").mkdir(parents=True)
    (tmp_path / "train.py").touch()

    words = ("python", "../train.py", "--data", "data", f"--root={tmp_path}", "--lr", "../no")

    assert outside(words, project) == ("../train.py", f"--root={tmp_path}")
