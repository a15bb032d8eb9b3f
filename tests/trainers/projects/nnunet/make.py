"""Make a dataset of small pictures, and a trainer class that has few epochs and saves each one."""

import json
import os
from pathlib import Path

import nnunetv2
import numpy as np
from PIL import Image

rng = np.random.default_rng(0)
root = Path(os.environ["nnUNet_raw"], "Dataset001_Tiny")
for name in ("imagesTr", "labelsTr"):
    (root / name).mkdir(parents=True, exist_ok=True)
for number in range(8):
    label = np.zeros((64, 64), np.uint8)
    x, y = rng.integers(8, 40, 2)
    label[x : x + 16, y : y + 16] = 1
    image = (label * 120 + rng.integers(0, 80, label.shape)).astype(np.uint8)
    Image.fromarray(image).save(root / "imagesTr" / f"case_{number:03}_0000.png")
    Image.fromarray(label).save(root / "labelsTr" / f"case_{number:03}.png")
(root / "dataset.json").write_text(json.dumps({
    "channel_names": {"0": "gray"}, "labels": {"background": 0, "square": 1},
    "numTraining": 8, "file_ending": ".png",
}))
Path(nnunetv2.__path__[0], "training", "nnUNetTrainer", "variants", "nnUNetTrainerTiny.py").write_text('''
import torch
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer


class nnUNetTrainerTiny(nnUNetTrainer):
    def __init__(self, plans, configuration, fold, dataset_json, device=torch.device("cpu")):
        super().__init__(plans, configuration, fold, dataset_json, device)
        self.num_epochs, self.save_every = 6, 1
        self.num_iterations_per_epoch, self.num_val_iterations_per_epoch = 12, 2
''')
