"""tools/refresh.py against saved pages: each index in its own format, reduced."""

from __future__ import annotations

import importlib.util
import sys
import tomllib
from datetime import date
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

PAGES = Path(__file__).with_name("saved_pages")
WHEELS = """\
# A comment that stays.

[[release]]
torch = ">=2.13,<2.14"
latest = "2.13.0"
python = ">=3.10,<3.15"
rocm = "7.2"
arches = ["gfx1100"]

[[release]]
torch = ">=2.14,<2.15"
latest = "2.14.0"
python = ">=3.10,<3.14"
rocm = "7.2"
arches = ["gfx1100"]

[[release]]
torch = ">=2.14,<2.15"
latest = "2.14.0"
rocm = "7.14"
arches = ["gfx1100"]

# AMD's.

[[index]]
id = "amd"
address = "https://stable.repo.amd.com/rocm/whl-next/"
torch = ">=2.14,<2.15"
rocm = "10.1"
python = ">=3.10,<3.15"
arches = ["gfx90a", "gfx1100"]
[index.tested]
linux = ["gfx1100"]

[[index]]
id = "amd-10.0"
address = "https://stable.repo.amd.com/rocm/whl-next/"
torch = ">=2.11,<2.14"
pin = "==2.13.0+rocm10.0.0"
rocm = "10.0"
python = ">=3.10,<3.15"
arches = ["gfx1100"]

[[index]]
id = "amd-7.14"
address = "https://repo.amd.com/rocm/whl-multi-arch/"
torch = ">=2.10,<2.13"
pin = "==2.12.0+rocm7.14.1"
rocm = "7.14"
arches = ["gfx1100"]

[[index]]
id = "amd-nightly"
address = "https://nightly.repo.amd.com/rocm/whl-next/"
torch = ">=2.12,<2.15"
rocm = "10.2"
python = ">=3.10,<3.15"
arches = ["gfx1100"]
"""
PRICES = """\
[[offer]]
id = "runpod-mi300x"
dollars = 2.39
as_of = 2026-08-22
source = "skypilot-catalog-runpod"
sky = "MI300X"
infra = "runpod"
instance = "1x_MI300X_SECURE*"

[[offer]]
id = "crusoe-mi300x"
dollars = 3.45
as_of = 2026-08-19
source = "gpuhunt-crusoe"
"""


@pytest.fixture(scope="module")
def refresh() -> ModuleType:
    path = Path(__file__).parents[2] / "tools/refresh.py"
    spec = importlib.util.spec_from_file_location("refresh", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["refresh"] = module
    spec.loader.exec_module(module)
    return module


def tables(folder: Path) -> Path:
    (folder / "wheels.toml").write_text(WHEELS)
    (folder / "prices.toml").write_text(PRICES)
    return folder


def written(folder: Path) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]], Any]:
    wheels = tomllib.loads((folder / "wheels.toml").read_text())
    prices = tomllib.loads((folder / "prices.toml").read_text())
    return wheels["release"], {row["id"]: row for row in wheels["index"]}, prices["offer"]


def test_the_tables_follow_the_pages(
    tmp_path: Path, refresh: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    tables(tmp_path)

    code = refresh.main(["--write", "--pages", str(PAGES), "--data", str(tmp_path)])

    releases, indexes, offers = written(tmp_path)
    assert [(row["latest"], row["python"]) for row in releases] == [
        ("2.13.0", ">=3.10,<3.15"),
        ("2.14.1", ">=3.10,<3.15"),
        ("2.14.1", ">=3.10,<3.15"),
    ]
    assert all("checked" in row for row in releases)
    stable = indexes["amd"]
    assert (stable["rocm"], stable["torch"]) == ("10.2", ">=2.14,<2.15")
    assert stable["arches"] == ["gfx1100", "gfx1201"]  # gfx90a has no package of this release
    assert stable["tested"] == {"linux": ["gfx1100"]}
    assert indexes["amd-10.0"]["pin"] == "==2.13.0+rocm10.0.1"
    assert (indexes["amd-nightly"]["rocm"], indexes["amd-nightly"]["torch"]) == (
        "10.3",
        ">=2.14,<2.16",
    )
    assert offers[0] == {
        "id": "runpod-mi300x",
        "dollars": 2.49,
        "as_of": date(2026, 11, 16),
        "source": "skypilot-catalog-runpod",
        "sky": "MI300X",
        "infra": "runpod",
        "instance": "1x_MI300X_SECURE*",
    }
    assert offers[1]["as_of"] == date(2026, 8, 19)
    text = (tmp_path / "wheels.toml").read_text()
    assert text.startswith("# A comment that stays.")
    assert "# AMD's." in text

    # The old index has no saved page, as one that has moved: it is named, and its row stays.
    shown = capsys.readouterr().out
    assert code == 1
    assert "not read: https://repo.amd.com/rocm/whl-multi-arch/torch/" in shown
    assert "checked" not in indexes["amd-7.14"]
    assert "torch 2.15 with ROCm 7.14" in shown
    assert "PyTorch 2.15.0" in shown
    assert "TheRock 10.2" in shown


def test_without_write_nothing_is_written(tmp_path: Path, refresh: ModuleType) -> None:
    tables(tmp_path)

    refresh.main(["--pages", str(PAGES), "--data", str(tmp_path)])

    assert (tmp_path / "wheels.toml").read_text() == WHEELS
    assert (tmp_path / "prices.toml").read_text() == PRICES


def test_a_second_look_changes_nothing(
    tmp_path: Path, refresh: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--write", "--pages", str(PAGES), "--data", str(tables(tmp_path))]
    refresh.main(arguments)
    first = (tmp_path / "wheels.toml").read_text()
    capsys.readouterr()

    refresh.main(arguments)

    assert (tmp_path / "wheels.toml").read_text() == first
    assert "wheels.toml: amd: " not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("instance", "dollars"), [("gpu_1x_h100_sxm5", 4.39), ("gpu_1x_h100_pcie", 3.29), ("*", 3.29)]
)
def test_a_price_is_that_of_the_instance(
    refresh: ModuleType, instance: str, dollars: float
) -> None:
    """Lambda's two H100 have one name; the cheaper one is the slower card."""
    catalog = """\
InstanceType,AcceleratorName,AcceleratorCount,Price
gpu_1x_h100_sxm5,H100,1.0,4.39
gpu_1x_h100_pcie,H100,1.0,3.29
"""
    row = {"sky": "H100", "infra": "lambda", "instance": instance, "as_of": date(2026, 8, 22)}

    fields = dict(refresh.price_changes(row, catalog, "2026-11-16"))

    assert fields["dollars"] == dollars


def test_the_real_tables_can_be_read(refresh: ModuleType) -> None:
    """Every row is understood; nothing is fetched, so nothing changes."""

    def nothing(address: str) -> str:
        raise OSError(f"no network for {address}")

    seen = refresh.Refresh(refresh.DATA, nothing, "2026-11-18")

    assert seen.changes() == []
    assert not [note for note in seen.notes if "no such build" in note]
    assert seen.failed
