"""What a script wrote: checkpoints as patterns, apart from models that it leaves."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from rocsteady.plan.script_traces import _apart, _there_before


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
        (("ckpt/model.bin", "ckpt/log.txt"), ("ckpt/model.bin",), ()),
        (("out/ckpts/e1.pth.tar", "out/ckpts/config.yaml"), ("out/ckpts/e*.pth.tar",), ()),
        (("log.txt", "metrics.json"), (), ()),
    ],
)
def test_checkpoints_and_models(
    tmp_path: Path, written: tuple[str, ...], checkpoints: tuple[str, ...], models: tuple[str, ...]
) -> None:
    (tmp_path / "run7" / "checkpoints").mkdir(parents=True)

    assert _apart(map(PurePosixPath, written), tmp_path) == (checkpoints, models)


@pytest.mark.parametrize(
    ("there", "found"),
    [
        (("ckpt/step_100.pt", "ckpt/step_200.pt", "ckpt/args.json"), {"ckpt/step_*.pt"}),
        (("out/checkpoint-20/model.safetensors",), {"out/checkpoint-*"}),
        (("model_checkpoints/last.pth",), {"model_checkpoints/last.pth"}),
        (("Snapshots/a.tar", "Snapshots/events.out.tfevents.1.host"), {"Snapshots/a.tar"}),
        (("data/resnet50.pt", "weights/v3.pth", "model.pt"), set()),  # not what a run resumes from
    ],
)
def test_checkpoints_of_earlier_runs_are_found(
    tmp_path: Path, there: tuple[str, ...], found: set[str]
) -> None:
    for name in there:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()

    assert set(_there_before(tmp_path)) == found
