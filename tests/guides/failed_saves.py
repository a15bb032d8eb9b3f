"""Train with a disk that refuses a save now and then; print what happened as JSON."""

from __future__ import annotations

import errno
import json
import os
import sys
from pathlib import Path

import torch

FOLDER = Path("checkpoints")


def full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def transformers(wrong: str) -> dict[str, object]:
    from rocsteady_train.integrations.transformers import (  # noqa: PLC0415 - one of them
        RocsteadyCallback,
        keep_training,
        newest_checkpoint,
    )
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments  # noqa: PLC0415 - one of them

    row = torch.arange(8)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=16, n_positions=8, n_embd=8, n_layer=1, n_head=1))
    args = TrainingArguments(
        output_dir=str(FOLDER), max_steps=8, save_steps=2, save_total_limit=2, use_cpu=True,
        per_device_train_batch_size=2, report_to="none", disable_tqdm=True,
    )  # fmt: skip
    data = [{"input_ids": row, "labels": row}] * 32
    trainer = Trainer(model=model, args=args, train_dataset=data, callbacks=[RocsteadyCallback()])
    original, seen = trainer._save_optimizer_and_scheduler, []

    def refuse(output_dir: str) -> None:  # after the weights were written
        seen.append(sorted(path.name for path in FOLDER.iterdir()))
        if trainer.state.global_step in (4, 6):
            if wrong == "gpu":
                raise torch.AcceleratorError("HIP error: unspecified launch failure")
            full()
        original(output_dir)

    trainer._save_optimizer_and_scheduler = refuse
    if wrong != "plain":
        keep_training(trainer)
    trainer.train()
    names = sorted(path.name for path in FOLDER.iterdir())
    newest = newest_checkpoint(FOLDER)
    return {"steps": trainer.state.global_step, "left": names, "newest": Path(newest or "").name}


def lightning(wrong: str) -> dict[str, object]:
    import lightning.pytorch as pl  # noqa: PLC0415 - one of them
    from lightning.pytorch.callbacks import ModelCheckpoint  # noqa: PLC0415 - one of them
    from lightning.pytorch.plugins import TorchCheckpointIO  # noqa: PLC0415 - one of them
    from rocsteady_train.integrations.lightning import (  # noqa: PLC0415 - one of them
        KeepTraining,
        RocsteadyCallback,
        newest_checkpoint,
    )
    from torch.utils.data import DataLoader  # noqa: PLC0415 - one of them

    class Line(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)

        def training_step(self, batch: torch.Tensor, _: int) -> torch.Tensor:
            return self.layer(batch).mean()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters())

    tried: list[str] = []
    original = TorchCheckpointIO.save_checkpoint

    def save(self: object, checkpoint: object, path: str, options: object = None) -> None:
        tried.append(Path(path).name)
        if len(tried) in (2, 3):
            if wrong == "gpu":
                raise torch.AcceleratorError("HIP error: unspecified launch failure")
            full()
        original(self, checkpoint, path, options)

    TorchCheckpointIO.save_checkpoint = save
    left: list[list[str]] = []

    class Look(pl.Callback):
        def on_train_batch_end(self, *_: object) -> None:
            left.append(sorted(path.name for path in FOLDER.glob("*.ckpt")))

    saves = ModelCheckpoint(dirpath=FOLDER, every_n_train_steps=2, save_top_k=1, filename="{step}")
    trainer = pl.Trainer(
        max_steps=8, callbacks=[Look(), saves, RocsteadyCallback()], accelerator="cpu",
        logger=False, enable_progress_bar=False, enable_model_summary=False,
        plugins=[KeepTraining()] if wrong != "plain" else None,
    )  # fmt: skip
    trainer.fit(Line(), DataLoader(torch.ones(64, 2), batch_size=4))
    newest = newest_checkpoint(FOLDER)
    return {"steps": trainer.global_step, "left": left, "newest": Path(newest or "").name}


if __name__ == "__main__":
    kind, wrong = sys.argv[1:]
    result = {"transformers": transformers, "lightning": lightning}[kind](wrong)
    print(json.dumps(result))
