"""``rocsteady init`` on scripts of the frameworks, as people have them: nothing of ours in them."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from supervised import Project, until

from rocsteady.run.job.job_file import read_job
from rocsteady.run.job.values import Job, Resume, Total

TRANSFORMERS = """
    import os
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
    from transformers.trainer_utils import get_last_checkpoint

    def main():
        rows = [torch.randint(0, 12, (10,)) for _ in range(400)]
        config = GPT2Config(
            vocab_size=12, n_positions=16, n_embd=32, n_layer=1, n_head=2,
            bos_token_id=None, eos_token_id=None,
        )
        args = TrainingArguments(
            output_dir="out", num_train_epochs=4, per_device_train_batch_size=4, save_steps=20,
            save_total_limit=2, report_to="none",
        )
        data = [{"input_ids": row, "labels": row} for row in rows]
        trainer = Trainer(model=GPT2LMHeadModel(config), args=args, train_dataset=data)
        last = get_last_checkpoint("out") if os.path.isdir("out") else None
        trainer.train(resume_from_checkpoint=last)

    if __name__ == "__main__":
        main()
"""
LIGHTNING = """
    import lightning.pytorch as pl
    import torch
    from lightning.pytorch.callbacks import ModelCheckpoint
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    class Ring(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.layers = nn.Linear(2, 1)

        def training_step(self, batch, batch_idx):
            (points,) = batch
            return self.layers(points).square().mean()

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

    def main():
        loader = DataLoader(TensorDataset(torch.rand(640, 2)), batch_size=32)
        trainer = pl.Trainer(
            max_epochs=40, accelerator="cpu", logger=False,
            callbacks=[ModelCheckpoint(dirpath="checkpoints", save_last=True)],
        )
        trainer.fit(Ring(), loader, ckpt_path="last")

    if __name__ == "__main__":
        main()
"""
WITHIN = 120.0  # seconds


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    made = Project(tmp_path)
    made.environment["OMP_NUM_THREADS"] = "1"
    try:
        yield made
        until(lambda: not made.processes(), 5.0, lambda: str(made.processes()))
    finally:
        made.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "total", "checkpoints"),
    [
        pytest.param(TRANSFORMERS, 400, ("out/checkpoint-*",), id="transformers"),
        pytest.param(
            LIGHTNING,
            800,
            ("checkpoints/epoch=*-step=*.ckpt", "checkpoints/last.ckpt"),
            id="lightning",
        ),
    ],
)
def test_a_run_takes_what_init_wrote(
    project: Project,
    frameworks_python: str,
    script: str,
    total: int,
    checkpoints: tuple[str, ...],
) -> None:
    project.script(textwrap.dedent(script))
    command = (frameworks_python, "train.py")

    ended = project.say("init", "--yes", "--seconds", "1", "--", *command, within=WITHIN)

    assert ended.code == 0, ended.err
    assert sorted(path.name for path in project.folder.iterdir()) == ["rocsteady.toml", "train.py"]
    assert read_job(project.folder / "rocsteady.toml").job == Job(
        command=command,
        total=Total(steps=total),
        resume=Resume(checkpoints=checkpoints),
    )
    planned = project.say("plan", "--json", "--trial", "2s", "--within", "60s", within=WITHIN)
    assert planned.code == 0, planned.err
    plan = json.loads(planned.out)
    assert (plan["left"], plan["options"][0]["id"][:3]) == (total, "cpu")
    assert plan["options"][0]["finish"]["seconds"] > 0
    assert sorted(path.name for path in project.folder.iterdir()) == ["rocsteady.toml", "train.py"]
    ran = project.say("run", "--name", project.name, within=WITHIN)
    assert ran.code == 0, ran.err
