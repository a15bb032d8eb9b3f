"""The image, chosen by GPU and then by torch; and imports as pins of what is installed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rocsteady.plan.exports.export import ACCELERATORS, WHEELS_FOR, image_for, pins


@pytest.mark.parametrize(
    ("gfx", "torch", "chosen"),
    [
        ("gfx1100", "2.8.0+rocm6.4", "2.8.0"),
        ("gfx1100", "2.9.0", "2.9.1"),
        ("gfx1100", "2.5.1+rocm6.2", "2.7.1"),  # the next one that there is
        ("gfx1100", "2.10.0", "2.11.0"),  # 2.10 is named for Instinct only
        ("gfx942", "2.10.0", "2.10.0"),
        ("gfx1151", "2.8.0", "2.11.0"),  # not in the images of 7.2
        ("gfx1201", "2.14.1", "2.13.0"),  # none is as new
        ("gfx1201", "", "2.13.0"),
        ("gfx1201", "a nightly", "2.13.0"),
        ("", "2.12.0", "2.12.0"),
    ],
)
def test_the_image_has_the_same_torch_or_the_next(gfx: str, torch: str, chosen: str) -> None:
    image = image_for(gfx, torch)

    assert image is not None
    assert image.torch == chosen


def test_there_is_no_image_for_an_rx_5700_but_there_are_wheels() -> None:
    assert image_for("gfx1010", "2.5.1") is None
    assert "gfx1010" in WHEELS_FOR
    assert "gfx803" not in WHEELS_FOR


def test_what_can_be_rented_has_an_image() -> None:
    assert all(image_for(gfx) for gfx in ACCELERATORS.values())


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
