"""The argument that a person would lower after running out of memory."""

from __future__ import annotations

import pytest

from rocsteady.failures.memory_arguments import memory_arguments


@pytest.mark.parametrize(
    ("words", "kind", "wanted"),
    [
        ("train.py --lr 3 --batch-size 64", "oom-device", (("--batch-size", 64),)),
        ("train.py --batch_size=32", "oom-device", (("--batch_size", 32),)),
        ("train.py trainer.batch=16", "oom-fragmentation", (("trainer.batch", 16),)),
        (
            "run.py --seq-len 4096 --per_device_train_batch_size 8",
            "oom-device",
            (("--per_device_train_batch_size", 8), ("--seq-len", 4096)),
        ),
        ("train.py -b 8 --num_workers 4", "oom-host", (("--num_workers", 4), ("-b", 8))),
        ("train.py --epochs 9 --seed 1 --batch-size 1", "oom-device", ()),
        ("train.py", "oom-device", ()),
    ],
)
def test_arguments(words: str, kind: str, wanted: tuple[tuple[str, int], ...]) -> None:
    assert memory_arguments(["python", *words.split()], kind) == wanted
