"""The project goes up, the model comes down, and SkyPilot takes the file."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from rocsteady.errors import RocsteadyError
from rocsteady.plan.exports.export import Export
from rocsteady.plan.exports.targets import TARGETS

HERE = Path(__file__).parent
SCHEMA = json.loads((HERE / "sky_task.json").read_text())
OFFERS: dict[str, dict[str, object]] = {
    "nvidia": {},
    "vast": {"infra": "vast", "max_hourly_cost": None},
    "instinct": {"accelerator": "MI300X", "gpus": 8},
    "kubernetes": {"infra": "kubernetes", "accelerator": "MI300"},
    "hard": {"command": ("python", "a b.py", "$(x)", "it's", "a\nb", "\u00e9"), "requirements": ""},
}


def task(export: Export) -> str:
    (text,) = TARGETS["skypilot"](export).values()
    return text


def table(export: Export) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(task(export))
    return loaded


@pytest.mark.parametrize("offer", OFFERS)
def test_a_task_has_only_keys_that_skypilot_knows(
    an_export: Callable[..., Export], offer: str
) -> None:
    jsonschema.validate(table(an_export(**OFFERS[offer])), SCHEMA)


def test_nvidia_gets_torch_from_pip_and_amd_an_image(an_export: Callable[..., Export]) -> None:
    nvidia, amd = task(an_export()), task(an_export(accelerator="MI300X"))

    assert "python3 -m pip install torch==2.8.0\n" in nvidia
    assert "image_id" not in nvidia
    image = "docker:rocm/pytorch:rocm7.2.4_ubuntu24.04_py3.12_pytorch_release_2.8.0"
    assert f'image_id: "{image}"' in amd
    assert "pip install torch" not in amd


def test_rsync_brings_the_model_before_the_machine_goes(
    an_export: Callable[..., Export],
) -> None:
    text = task(an_export())

    assert text.split("From the project folder:\n")[1].splitlines()[:5] == [
        "#     sky launch --cluster es-futures es-futures.yaml",
        "#     rsync -Pavz es-futures:sky_workdir/TRAINING/ TRAINING/",
        "#     rsync -Pavz es-futures:sky_workdir/checkpoints/ checkpoints/",
        "#     rsync -Pavz 'es-futures:sky_workdir/meta data.json' ./",
        "#     sky down es-futures",
    ]


def test_what_cannot_be_rented_is_said(an_export: Callable[..., Export]) -> None:
    with pytest.raises(RocsteadyError, match="needs a GPU to rent"):
        task(an_export(accelerator=""))
    with pytest.raises(RocsteadyError, match="no AMD image is known for MI60"):
        task(an_export(accelerator="MI60"))


def test_several_machines_are_for_a_scheduler(an_export: Callable[..., Export]) -> None:
    with pytest.raises(RocsteadyError, match="export to slurm or kubernetes"):
        task(an_export(command=("torchrun", "--nnodes=2", "train.py"), accelerator="MI300X"))


@pytest.mark.slow
def test_skypilot_itself_takes_every_task(
    an_export: Callable[..., Export], sky_python: str, tmp_path: Path
) -> None:
    exports = {offer: an_export(**other) for offer, other in OFFERS.items()}
    for offer, export in exports.items():
        (tmp_path / f"{offer}.yaml").write_text(task(export), encoding="utf-8")
    home = tmp_path / "home"
    home.mkdir()
    names = [f"{offer}.yaml" for offer in exports]

    done = subprocess.run(
        [sky_python, str(HERE / "check_sky.py"), *names],
        cwd=tmp_path,
        env=os.environ | {"HOME": str(home)},
        check=False,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stderr[-3000:]
    understood = json.loads((tmp_path / f"{names[0]}.json").read_text())
    for export, task_read in zip(exports.values(), understood, strict=True):
        read = table(export)
        image = read["resources"].get("image_id")
        assert task_read["run"] == read["run"]
        assert task_read["setup"] == read["setup"]
        assert task_read["cloud"].lower() == export.infra
        assert task_read["accelerators"] == {export.accelerator: export.gpus}
        assert task_read["image"] == (image.removeprefix("docker:") if image else None)
        assert task_read["down"] is True
        assert task_read["recovery"]["recover_on_exit_codes"] == [75]
        assert task_read["mounts"] == {
            target: [mount["source"], mount["mode"]]
            for target, mount in read.get("file_mounts", {}).items()
        }
