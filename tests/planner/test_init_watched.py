"""What a script wrote: checkpoints as patterns, apart from models that it leaves."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from rocsteady.planner.watched import _apart


@pytest.mark.parametrize(
    ("written", "checkpoints", "models"),
    [
        (("c/step-000010.pt", "c/step-000020.pt"), ("c/step-*.pt",), ()),
        (("c/epoch=1-step=64.ckpt", "c/last.ckpt"), ("c/epoch=*-step=*.ckpt", "c/last.ckpt"), ()),
        (
            ("out/checkpoint-20/model.safetensors", "out/checkpoint-20/trainer_state.json"),
            ("out/checkpoint-*",),
            (),
        ),
        (("c/step-000000120/rank-0.safetensors",), ("c/step-*",), ()),
        (("logs/version_0/checkpoints/a.ckpt",), ("logs/version_*/checkpoints/a.ckpt",), ()),
        (("run7/checkpoints/a.pt",), ("run7/checkpoints/a.pt",), ()),  # run7 was there before
        (("model.pt", "out/best.safetensors"), (), ("model.pt", "out/best.safetensors")),
        (("odd[1]/latest.pt",), ("odd[[]*]/latest.pt",), ()),
        (("log.txt", "metrics.json"), (), ()),
    ],
)
def test_checkpoints_and_models(
    tmp_path: Path, written: tuple[str, ...], checkpoints: tuple[str, ...], models: tuple[str, ...]
) -> None:
    (tmp_path / "run7" / "checkpoints").mkdir(parents=True)

    assert _apart(map(PurePosixPath, written), tmp_path) == (checkpoints, models)
