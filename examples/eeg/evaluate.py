"""Measure the trained models on held-out subjects, as the challenge does: python evaluate.py.

NRMSE is the root of the mean squared error in units of the standard deviation of what is true; 1
is what naming the mean comes to. The overall score weighs response times with 0.3 and the
externalizing factor with 0.7; lower is better.
"""

import argparse
import csv
import json
import statistics
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from model import Encoder, Regressor, load_parts
from signals import FACTORS
from torch.utils.data import DataLoader

NAMES = {"challenge_1": ("response_time",), "challenge_2": FACTORS}
COUNTS = {"challenge_1": ("response_time", 0.3), "challenge_2": ("externalizing", 0.7)}
MARGIN = 0.1


@torch.no_grad()
def answers(model, part, args):
    """Return what is predicted and what is true, a row for each window."""
    model.eval()
    pairs = [(model(x.to(args.device)).cpu(), y) for x, y in DataLoader(part, args.batch_size)]
    return tuple(torch.cat(column).numpy() for column in zip(*pairs, strict=True))


def nrmse(guessed, true):
    return np.sqrt(np.square(guessed - true).mean(axis=0)) / true.std(axis=0)


def measure(model, part, args):
    """Return the NRMSE of each output, and that of always naming the mean of the labels."""
    guessed, true = answers(model, part, args)
    phase = "challenge_1" if true.shape[1] == 1 else "challenge_2"
    trivial = nrmse(model.centre.cpu().numpy()[None], true)
    return {
        name: {key: float(x) for key, x in zip(NAMES[phase], found, strict=True)}
        for name, found in (("nrmse", nrmse(guessed, true)), ("baseline", trivial))
    }


def overall(results, name="nrmse"):
    return sum(share * results[phase][name][key] for phase, (key, share) in COUNTS.items())


@torch.no_grad()
def measure_filling_in(encoder, part, args, draw_mask, generator):
    """Return the loss on hidden patches, and that of predicting 0, which is the mean."""
    encoder.eval()
    filled_in, mean, count = 0.0, 0.0, 0
    for signals, _ in DataLoader(part, args.batch_size):
        patches = encoder.patches(signals.to(args.device))
        mask = draw_mask(patches, generator)
        guess = encoder.fill_in(encoder(patches, mask))
        filled_in += (guess - patches)[mask].square().sum().item()
        mean += patches[mask].square().sum().item()
        count += patches[mask].numel()
    return {"loss": filled_in / count, "mean_loss": mean / count}


@torch.no_grad()
def median_latency(model, window, device, repeats=50):
    """Return the milliseconds from one window in memory to the answer in memory."""
    times = []
    for _ in range(10 + repeats):  # the first ten warm up
        start = time.perf_counter()
        model(window[None].to(device)).cpu()  # waits for the GPU, if there is one
        times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times[10:])


def load(output):
    """Return both trained models of a folder, their arguments, and what was written about them."""
    metadata = json.loads((output / "metadata.json").read_text())
    args = SimpleNamespace(**{**metadata["arguments"], "device": "cpu"})
    args.data = Path(args.data)
    weights = torch.load(output / "model.pt", weights_only=True, map_location="cpu")
    models = {}
    for phase, state in weights.items():
        models[phase] = Regressor(Encoder(metadata["channels"], 200, args), len(NAMES[phase]))
        models[phase].load_state_dict(state)
        models[phase].eval()
    return models, args, metadata


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("output"))
    output = parser.parse_args().output
    models, args, metadata = load(output)
    torch.set_num_threads(int(args.threads))
    parts = load_parts(args.data, args.labelled)
    found, results = {}, {}
    for phase, model in models.items():
        found[phase] = answers(model, parts[phase][1], args)
        results[phase] = measure(model, parts[phase][1], args)
        for name in NAMES[phase]:
            own, trivial = results[phase]["nrmse"][name], results[phase]["baseline"][name]
            print(f"{phase} {name}: NRMSE {own:.3f}, of naming the mean {trivial:.3f}")
        with (output / f"{phase}.csv").open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(
                [f"{kind} {name}" for kind in ("predicted", "true") for name in NAMES[phase]]
            )
            rows.writerows(np.hstack(found[phase]).tolist())
    latency = median_latency(models["challenge_1"], parts["challenge_1"][1][0][0], "cpu")
    print(f"overall {overall(results):.3f}; {latency:.2f} ms a window on the CPU")
    try:
        from plots import draw  # noqa: PLC0415 - only this needs matplotlib
    except ImportError:
        print("no plots: pip install matplotlib")
    else:
        draw(output, metadata, found)


if __name__ == "__main__":
    main()
