"""Export both networks by torch.export, load them again and compare: python export.py."""

import argparse
from pathlib import Path

import torch
from evaluate import load
from simulation import NEIGHBOURS, OWN_FEATURES, SEEN_FEATURES

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--output", type=Path, default=Path("output"))
output = parser.parse_args().output
networks, *_ = load(output)
for kind, network in networks.items():
    animals = torch.export.Dim("animals", min=2, max=4096)
    rows = torch.rand(8, OWN_FEATURES), torch.rand(8, 2 * NEIGHBOURS, SEEN_FEATURES)
    program = torch.export.export(network, rows, dynamic_shapes=({0: animals}, {0: animals}))
    path = output / f"{kind}.pt2"
    torch.export.save(program, path)
    other = torch.rand(5, OWN_FEATURES), torch.rand(5, 2 * NEIGHBOURS, SEEN_FEATURES)
    exported = torch.export.load(path).module()(*other)
    difference = max(
        (a - b).abs().max().item() for a, b in zip(exported, network(*other), strict=True)
    )
    print(f"{path}: outputs differ by at most {difference:.1e}")
    if difference > 1e-5:
        raise SystemExit("the exported network gives other answers")
