"""Stand-in: HfArgumentParser, TrainingArguments, Trainer with checkpoint-N folders, get_last_checkpoint."""
import argparse
import dataclasses
import json
import os
import re
import sys
import time
import types
import typing

import torch


@dataclasses.dataclass
class TrainingArguments:
    output_dir: str = "trainer_output"
    max_steps: int = 60
    save_steps: int = 10
    learning_rate: float = 1e-2
    seed: int = 42
    resume_from_checkpoint: typing.Optional[str] = None
    overwrite_output_dir: bool = False


class HfArgumentParser:
    def __init__(self, classes):
        self.classes = classes if isinstance(classes, (tuple, list)) else [classes]

    def parse_args_into_dataclasses(self, args=None):
        parser = argparse.ArgumentParser()
        for cls in self.classes:
            for f in dataclasses.fields(cls):
                kind = type(f.default) if f.default is not None else str
                parser.add_argument(f"--{f.name}", type=kind, default=f.default)
        given = vars(parser.parse_args(args))
        return tuple(cls(**{f.name: given[f.name] for f in dataclasses.fields(cls)}) for cls in self.classes)


def get_last_checkpoint(folder):
    names = [n for n in os.listdir(folder) if re.fullmatch(r"checkpoint-\d+", n)]
    return os.path.join(folder, max(names, key=lambda n: int(n.split("-")[1]))) if names else None


class Trainer:
    def __init__(self, model, args, train_dataset=None):
        self.model, self.args = model, args

    def train(self, resume_from_checkpoint=None):
        args, step = self.args, 0
        torch.set_num_threads(1)
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=args.learning_rate)
        if resume_from_checkpoint is True:
            resume_from_checkpoint = get_last_checkpoint(args.output_dir)
            if resume_from_checkpoint is None:
                raise ValueError(f"No valid checkpoint found in output directory ({args.output_dir})")
        if resume_from_checkpoint:
            where = resume_from_checkpoint
            self.model.load_state_dict(torch.load(os.path.join(where, "pytorch_model.bin")))
            optimizer.load_state_dict(torch.load(os.path.join(where, "optimizer.pt")))
            with open(os.path.join(where, "trainer_state.json")) as f:
                step = json.load(f)["global_step"]
        while step < args.max_steps:
            x = torch.randn(8, 4, generator=torch.Generator().manual_seed(step))
            loss = (self.model(x) - x.sum(1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            time.sleep(0.05)
            if step % args.save_steps == 0:
                print({"loss": round(loss.item(), 4), "epoch": step / 20}, flush=True)
                self._save_checkpoint(optimizer, step)

    def _save_checkpoint(self, optimizer, step):
        where = os.path.join(self.args.output_dir, f"checkpoint-{step}")
        os.makedirs(where, exist_ok=True)
        torch.save(self.model.state_dict(), os.path.join(where, "pytorch_model.bin"))
        torch.save(optimizer.state_dict(), os.path.join(where, "optimizer.pt"))
        with open(os.path.join(where, "trainer_state.json"), "w") as f:
            json.dump({"global_step": step}, f)

    def save_model(self, path):
        os.makedirs(path, exist_ok=True)
        torch.save(self.model.state_dict(), os.path.join(path, "pytorch_model.bin"))


trainer_utils = types.ModuleType("transformers.trainer_utils")
trainer_utils.get_last_checkpoint = get_last_checkpoint
sys.modules["transformers.trainer_utils"] = trainer_utils
