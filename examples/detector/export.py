"""Export the detector by torch.export, load it again and compare: python export.py."""

import argparse
from pathlib import Path

import torch
from evaluate import load
from model import SIZE

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--output", type=Path, default=Path("output"))
output = parser.parse_args().output
model, *_ = load(output)
program = torch.export.export(model, (torch.rand(1, 3, SIZE, SIZE),))
torch.export.save(program, output / "model.pt2")
image = torch.rand(1, 3, SIZE, SIZE)
exported = torch.export.load(output / "model.pt2").module()(image)
difference = (exported - model(image)).abs().max().item()
print(f"{output / 'model.pt2'}: outputs differ by at most {difference:.1e}")
if difference > 1e-4:
    raise SystemExit("the exported model gives other answers")
