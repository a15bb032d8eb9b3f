"""Scripts that resume on their own are known by their arguments; a path is no such argument."""

from __future__ import annotations

import shlex

import pytest

from rocsteady.doctor.knowledge.resume_arguments import load_arguments, resume_argument


@pytest.mark.parametrize(
    ("command", "argument"),
    [
        ("python train.py --resume latest", "--resume latest"),
        ("python train.py --resume=auto --lr 1", "--resume=auto"),
        ("python train.py --resume --lr 1", "--resume"),
        ("python train.py --epochs 3 --resume", "--resume"),
        ("torchrun train.py --resume_from_checkpoint latest", "--resume_from_checkpoint latest"),
        ("python train.py --resume-from-checkpoint True", "--resume-from-checkpoint True"),
        ("python train.py trainer.x=1 ckpt_path=last", "ckpt_path=last"),
        ("python train.py +trainer.ckpt_path=last", "+trainer.ckpt_path=last"),
        ("yolo train model=last.pt resume=True", "resume=True"),
        ("python train.py exp_manager.resume_if_exists=true", "exp_manager.resume_if_exists=true"),
        ("python train.py --init_from=resume", "--init_from=resume"),
    ],
)
def test_what_resumes_on_its_own(command: str, argument: str) -> None:
    assert resume_argument(shlex.split(command)) == argument


@pytest.mark.parametrize(
    "command",
    [
        "python train.py",
        "python train.py --resume checkpoints/step-200.pt",
        "python train.py --resume=out/last.ckpt",
        "python train.py --resume_from_checkpoint out/checkpoint-500",
        "python train.py ckpt_path=out/last.ckpt",
        "python train.py --resume false",
        "python train.py --resume none",
        "python train.py --no-resume",
        "python train.py --init_from=gpt2",
        "python resume latest",
        "python train.py --mode latest",
    ],
)
def test_what_does_not(command: str) -> None:
    assert not resume_argument(shlex.split(command))


def test_each_has_a_source() -> None:
    assert all(argument.sources and argument.values for argument in load_arguments())
