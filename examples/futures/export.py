"""Export the last model by torch.export, load it again and compare: python export.py."""

import argparse
from pathlib import Path

import torch
from evaluate import load
from features import FEATURES

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--output", type=Path, default=Path("output"))
output = parser.parse_args().output
model, _ = load(output)
rows = torch.export.Dim("rows", min=2, max=65536)
shapes = {"rows": {0: rows}}
program = torch.export.export(model, (torch.rand(8, FEATURES),), dynamic_shapes=shapes)
torch.export.save(program, output / "model.pt2")
other = torch.rand(5, FEATURES)
exported = torch.export.load(output / "model.pt2").module()(other)
difference = (exported - model(other)).abs().max().item()
print(f"{output / 'model.pt2'}: outputs differ by at most {difference:.1e}")
if difference > 1e-5:
    raise SystemExit("the exported model gives other answers")
