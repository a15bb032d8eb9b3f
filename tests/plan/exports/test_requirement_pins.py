"""Imports become pins of what is installed; torch, the standard library and own files do not."""

from __future__ import annotations

import os
from pathlib import Path

from rocsteady.plan.exports.requirement_pins import pins


def install(site: Path, name: str, version: str, *files: str) -> None:
    info = site / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "RECORD").write_text("".join(f"{file},,\n" for file in files))


def test_a_script_is_pinned_to_what_is_installed(tmp_path: Path) -> None:
    site, folder = tmp_path / "site", tmp_path / "job"
    install(site, "numpy", "2.4.6", "numpy/__init__.py")
    install(site, "scikit-learn", "1.9.0", "sklearn/__init__.py")
    install(site, "torch", "2.13.0+cpu", "torch/__init__.py")
    install(site, "other", "1.0", "other.py")
    folder.mkdir()
    (folder / "train.py").write_text(
        "import json, numpy as np, torch, data\nfrom sklearn.svm import SVC\nfrom . import other\n"
    )
    (folder / "data.py").write_text("import torch.nn\n")
    (folder / "old.py").write_text("print 'of another Python'\n")
    os.mkfifo(folder / "pipe.py")

    assert pins(folder, [str(site)]) == "numpy==2.4.6\nscikit-learn==1.9.0\n"


def test_nothing_to_pin_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\n")

    assert not pins(tmp_path, [])
