"""Makes real checkpoints of a framework, breaks the newest in every way, and tells which is chosen.

It prints JSON: for each damage the name of the checkpoint to go on from.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import torch

Choose = Callable[[Path], "str | None"]


def half(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def emptied(path: Path) -> None:
    os.truncate(path, 0)


def flipped(path: Path) -> None:
    """Change a byte of the largest part of a zip, or in the header of a safetensors file."""
    content = bytearray(path.read_bytes())
    at = 4 if path.suffix == ".safetensors" else _in_largest(path)
    content[at] ^= 0x10
    path.write_bytes(content)


def removed(path: Path) -> None:
    path.unlink()


def _in_largest(path: Path) -> int:
    import zipfile  # noqa: PLC0415 - only here

    with zipfile.ZipFile(path) as archive:
        largest = max(archive.infolist(), key=lambda entry: entry.file_size)
        with archive.open(largest) as stream:
            start = stream.read(64)
    return path.read_bytes().index(start) + len(start) // 2


def compare(made: Path, newest: Path, choose: Choose) -> dict[str, str | None]:
    """Break each file of the newest checkpoint in each way, in a copy of them all."""
    names = [
        path.relative_to(made) for path in (newest.rglob("*") if newest.is_dir() else [newest])
    ]
    chosen: dict[str, str | None] = {"nothing": _named(choose(made))}
    for name in sorted(names):
        for damage in (half, emptied, flipped, removed):
            if damage is flipped and name.suffix == ".json":
                continue
            copy = made.with_name("copy")
            shutil.copytree(made, copy)
            damage(copy / name)
            chosen[f"{damage.__name__} {name.name}"] = _named(choose(copy))
            shutil.rmtree(copy)
    return chosen


def _named(path: str | None) -> str | None:
    return None if path is None else Path(path).name


def of_transformers(made: Path) -> dict[str, str | None]:
    from rocsteady_train.integrations.transformers import (  # noqa: PLC0415
        RocsteadyCallback,
        newest_checkpoint,
    )
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments  # noqa: PLC0415

    config = GPT2Config(
        vocab_size=8, n_positions=8, n_embd=8, n_layer=1, n_head=1, bos_token_id=0, eos_token_id=0
    )
    row = torch.arange(8)
    args = TrainingArguments(
        output_dir=str(made), max_steps=12, save_steps=4, disable_tqdm=True, report_to="none"
    )
    data = [{"input_ids": row, "labels": row}] * 64
    Trainer(model=GPT2LMHeadModel(config), args=args, train_dataset=data).train()
    chosen = compare(made, made / "checkpoint-12", newest_checkpoint)

    state = made / "checkpoint-12" / "trainer_state.json"
    text = state.read_text()
    state.write_text(text.replace('"global_step": 12', '"global_step": 8'))
    chosen["state of another step"] = _named(newest_checkpoint(made))
    state.write_text(text)
    mark = made / "checkpoint-12" / "checkpoint-is-incomplete.txt"
    mark.touch()
    chosen["cut off at SIGTERM"] = _named(newest_checkpoint(made))
    mark.unlink()
    index = made / "checkpoint-12" / "model.safetensors.index.json"
    for name, content in (
        ("a shard is missing", {"weight_map": {"w": "model-00002-of-00002.safetensors"}}),
        ("a foreign index", {"weight_map": []}),
    ):
        index.write_text(json.dumps(content))
        chosen[name] = _named(newest_checkpoint(made))
    index.unlink()
    os.environ["ROCSTEADY_RESUME_FROM"] = str(made / "checkpoint-4")
    chosen["an older one is asked for"] = _named(newest_checkpoint(made))
    os.environ["ROCSTEADY_RESUME_FROM"] = "another/checkpoint-4"
    chosen["one elsewhere is asked for"] = _named(newest_checkpoint(made))
    del os.environ["ROCSTEADY_RESUME_FROM"]
    chosen["no folder"] = newest_checkpoint(made / "nothing")

    half(made / "checkpoint-12" / "optimizer.pt")
    again = Trainer(
        model=GPT2LMHeadModel(config),
        args=args,
        train_dataset=data,
        callbacks=[RocsteadyCallback()],
    )
    again.train(resume_from_checkpoint=newest_checkpoint(made))
    chosen["after that"] = _named(newest_checkpoint(made))
    chosen["set aside"] = " ".join(path.name for path in (made / "set-aside").iterdir())
    return chosen


def of_lightning(made: Path) -> dict[str, str | None]:
    import lightning.pytorch as pl  # noqa: PLC0415
    from lightning.pytorch.callbacks import ModelCheckpoint  # noqa: PLC0415
    from lightning.pytorch.demos.boring_classes import BoringModel  # noqa: PLC0415
    from rocsteady_train.integrations.lightning import newest_checkpoint  # noqa: PLC0415

    saves = ModelCheckpoint(
        made, filename="{step}", every_n_train_steps=4, monitor="step", mode="max", save_top_k=-1
    )
    trainer = pl.Trainer(
        max_steps=12,
        callbacks=[saves],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        limit_val_batches=0,
    )
    trainer.fit(BoringModel())
    (made / "step=12.ckpt").rename(made / "last.ckpt")  # a name without a step
    chosen = compare(made, made / "last.ckpt", newest_checkpoint)

    trainer.save_checkpoint(made / "weights.ckpt", weights_only=True)
    chosen["weights only"] = _named(newest_checkpoint(made))
    torch.save({"global_step": "many"}, made / "foreign.ckpt")
    chosen["not of Lightning"] = _named(newest_checkpoint(made))
    os.environ["ROCSTEADY_RESUME_FROM"] = str(made / "step=4.ckpt")
    chosen["an older one is asked for"] = _named(newest_checkpoint(made))
    del os.environ["ROCSTEADY_RESUME_FROM"]
    chosen["no folder"] = newest_checkpoint(made / "nothing")
    return chosen


if __name__ == "__main__":
    kinds = {
        "transformers": of_transformers,
        "lightning": of_lightning,
    }
    folder = Path.cwd() / "checkpoints"
    result = kinds[sys.argv[1]](folder)
    print("\n" + json.dumps(result))
