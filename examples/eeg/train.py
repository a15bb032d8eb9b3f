"""Pre-train a transformer on EEG without labels, then fit it to two tasks with few labels.

Three phases, one run. pretrain: half of the patches are hidden, and the model fills them in.
challenge_1: how long until the button is pressed. challenge_2: four factors of psychopathology.
Both challenges begin with the pre-trained encoder.
"""

import argparse
import json
import os
import time
from pathlib import Path

import torch
from evaluate import MARGIN, measure, measure_filling_in, median_latency, overall
from make_data import PRESETS as DATA_PRESETS
from make_data import make_data
from model import Encoder, Regressor, load_parts
from torch import nn
from torch.utils.data import DataLoader

PHASES = ("pretrain", "challenge_1", "challenge_2")
OUTPUTS = {"challenge_1": 1, "challenge_2": 4}
PRESETS = {
    "small": {
        "patch_channels": 4,
        "layers": 1,
        "batch_size": 16,
        "labelled": 0.5,
        "pretrain_epochs": 10,
        "head_epochs": 30,
        "learning_rate": 1e-3,
        "checkpoint_every": 20,
        "log_every": 20,
    },
    "note": {
        "patch_channels": 43,
        "width": 256,
        "layers": 8,
        "heads": 8,
        "batch_size": 64,
        "pretrain_epochs": 1000,
        "head_epochs": 100,
        "learning_rate": 5e-4,
        "head_learning_rate": 2e-4,
        "checkpoint_every": 20,
        "log_every": 5,
    },
}


def draw_mask(patches, generator=None):
    """Hide half of the patches. Drawn on the CPU, so that a seed means the same anywhere."""
    return (torch.rand(patches.shape[:2], generator=generator) < 0.5).to(patches.device)


def pretrain_loss(encoder, signals, _):
    patches = encoder.patches(signals)
    mask = draw_mask(patches)
    filled_in = encoder.fill_in(encoder(patches, mask))
    return nn.functional.mse_loss(filled_in[mask], patches[mask])


def challenge_loss(model, signals, truth):
    return ((model(signals) - truth) / model.spread).square().mean()


def build(phase, args, parts, pretrained=None):
    """Return the model of a phase as it is before the first step of it."""
    signals, places = parts["pretrain"][0].signals
    encoder = Encoder(*signals.shape[1:], args)
    if pretrained is None:
        some = torch.from_numpy(signals[places[:: max(1, len(places) // 500)]].astype("float32"))
        encoder.scale[:] = some.std((0, 2))[:, None].clamp(min=1e-3)
    else:
        encoder.load_state_dict(pretrained)
    if phase == "pretrain":
        return encoder
    model = Regressor(encoder, OUTPUTS[phase])
    known = parts[phase][0].labels
    model.centre[:], model.spread[:] = known.mean(0), known.std(0)
    return model


def train_phase(phase, model, part, run, args):
    """Train from run["step"], which counts over all phases, to the end of this one."""
    first, last = run["spans"][phase]
    per_epoch = max(1, len(part) // args.batch_size)
    highest = args.learning_rate if phase == "pretrain" else args.head_learning_rate
    loss_of = pretrain_loss if phase == "pretrain" else challenge_loss
    decay = 0.01 if phase == "pretrain" else args.head_decay
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=decay)
    if run["optimizer"] is not None:
        optimizer.load_state_dict(run["optimizer"])
    model.train()
    while run["step"] < last:
        epoch, done = divmod(run["step"] - first, per_epoch)
        order = torch.Generator().manual_seed(1000 * args.seed + epoch)
        order = torch.randperm(len(part), generator=order)[done * args.batch_size :].tolist()
        loader = DataLoader(part, args.batch_size, sampler=order)
        for number, (signals, truth) in enumerate(loader, done):
            if number == per_epoch:
                break  # what is left is less than a batch
            share = (run["step"] - first) / (last - first)
            rate = min(1, 0.1 + 10 * share) * (1 - share)  # up quickly, then down
            optimizer.param_groups[0]["lr"] = highest * rate
            optimizer.zero_grad()
            loss = loss_of(model, signals.to(args.device), truth.to(args.device))
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            run["step"] += 1
            if run["step"] % args.log_every == 0 or run["step"] == last:
                where = f"epoch {epoch + 1}/{(last - first) // per_epoch}"
                steps = f"step {run['step']}/{run['total']}"
                print(f"{phase} {where} {steps} loss {loss.item():.3f}", flush=True)
                run["curve"].append([run["step"], phase, loss.item()])
            if run["step"] % args.checkpoint_every == 0 or run["step"] == last:
                save_checkpoint(phase, model, optimizer, run, args)


def save(value, path):
    """Write a file so that it is whole or not there, even after kill -9."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    if path.suffix == ".json":
        temporary.write_text(json.dumps(value, indent=2, default=str) + "\n")
    else:
        torch.save(value, temporary)
    temporary.replace(path)


def save_checkpoint(phase, model, optimizer, run, args):
    checkpoint = {
        **{name: run[name] for name in ("step", "curve", "pretraining", "sizes")},
        "models": {**run["models"], phase: model.state_dict()},
        "optimizer": optimizer.state_dict(),
        "random": torch.get_rng_state(),  # the masks; nothing else is drawn but the order
    }
    folder = args.output / "checkpoints"
    save(checkpoint, folder / f"step-{run['step']:06}.pt")
    for old in sorted(folder.glob("*.pt"), key=os.path.getmtime)[:-3]:
        old.unlink()


def load_checkpoint(path, run):
    """Go on with a run; refuse one of other sizes, whose steps would mean something else."""
    saved = torch.load(path, map_location="cpu", weights_only=True)
    if saved["sizes"] != run["sizes"]:
        raise SystemExit(f"{path} is of a run with other sizes: {saved['sizes']}")
    torch.set_rng_state(saved["random"])
    run |= {name: saved[name] for name in saved if name != "random"}
    print(f"resumed from {path} at step {run['step']}", flush=True)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", choices=PRESETS, help="sizes; each can still be given")
    parser.add_argument("--data", type=Path, default=Path("data"), help="made if it is not there")
    parser.add_argument("--output", type=Path, default=Path("output"))
    parser.add_argument("--until", choices=PHASES, default=PHASES[-1], help="stop after this phase")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1, help="more is slower for small models")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--resume", type=Path, help="a checkpoint to continue from")
    parser.add_argument("--checkpoint_every", type=int, default=50, help="steps")
    parser.add_argument("--log_every", type=int, default=50, help="steps")
    parser.add_argument("--labelled", type=float, default=0.3, help="share of subjects with labels")
    parser.add_argument("--patch_channels", type=int, default=8)
    parser.add_argument("--patch_samples", type=int, default=25)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--pretrain_epochs", type=int, default=40, help="0: none, to compare")
    parser.add_argument("--head_epochs", type=int, default=20)
    parser.add_argument("--learning_rate", type=float, default=3e-3)
    parser.add_argument("--head_learning_rate", type=float, default=1e-3)
    parser.add_argument("--head_decay", type=float, default=0.1)
    parser.set_defaults(**PRESETS.get(parser.parse_known_args()[0].preset, {}))
    return parser.parse_args()


def begin(args, parts):
    """Return a run of which nothing is done."""
    epochs = dict.fromkeys(PHASES, args.head_epochs) | {"pretrain": args.pretrain_epochs}
    spans, step = {}, 0
    for phase in PHASES:
        steps = epochs[phase] * max(1, len(parts[phase][0]) // args.batch_size)
        spans[phase] = (step, step + steps)
        step += steps
    sizes = {phase: list(span) for phase, span in spans.items()} | {"width": args.width}
    run = {"step": 0, "spans": spans, "total": step, "sizes": sizes, "curve": []}
    return run | {"models": {}, "optimizer": None, "pretraining": None}


def train(args, parts, run):
    """Carry out what is left of the phases; return the models of both challenges."""
    models = {}
    for phase in PHASES[: PHASES.index(args.until) + 1]:
        model = build(phase, args, parts, run["models"].get("pretrain")).to(args.device)
        if phase in run["models"]:
            model.load_state_dict(run["models"][phase])
        if run["step"] < run["spans"][phase][1]:
            train_phase(phase, model, parts[phase][0], run, args)
        if run["step"] == run["spans"][phase][1]:
            run["optimizer"] = None  # the next phase begins with its own
        run["models"][phase] = model.state_dict()
        if phase != "pretrain":
            models[phase] = model
        elif run["pretraining"] is None:
            generator = torch.Generator().manual_seed(0)
            found = measure_filling_in(model, parts[phase][1], args, draw_mask, generator)
            run["pretraining"] = found
            print(f"pretrain done: loss {found['loss']:.3f} on held-out windows, of predicting"
                  f" the mean {found['mean_loss']:.3f}", flush=True)  # fmt: skip
    return models


def main():
    args = parse_arguments()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    if not (args.data / "labels.npz").exists():
        print(f"{args.data} is not there: making it", flush=True)
        make_data(args.data, **DATA_PRESETS.get(args.preset, {}))
    parts = load_parts(args.data, args.labelled)
    run = begin(args, parts)
    if args.resume:
        load_checkpoint(args.resume, run)
    began = time.monotonic()
    models = train(args, parts, run)
    if args.until != PHASES[-1]:
        print(f"stopped after {args.until} at step {run['step']}")
        return
    results = {phase: measure(model, parts[phase][1], args) for phase, model in models.items()}
    value = overall(results)
    window = parts["challenge_1"][1][0][0]
    latency_ms = median_latency(models["challenge_1"], window, args.device)
    save({phase: model.cpu().state_dict() for phase, model in models.items()},
         args.output / "model.pt")  # fmt: skip
    encoder = models["challenge_1"].encoder
    metadata = {
        "parameters": sum(weights.numel() for weights in encoder.parameters()),
        "steps": run["step"],
        "seconds": time.monotonic() - began,
        "channels": encoder.channels,
        "arguments": vars(args),
        "measure": {
            "name": "overall NRMSE",
            "value": value,
            "baseline": overall(results, "baseline"),
            "baseline_is": "always naming the mean of the labelled windows",
            "margin": MARGIN,
            "higher_is_better": False,
        },
        "nrmse": value,
        **results,
        "pretraining": run["pretraining"],
        "latency_ms": latency_ms,
        "curve": run["curve"],
    }
    save(metadata, args.output / "metadata.json")
    for phase, found in results.items():
        print(f"{phase}: " + ", ".join(f"{name} {x:.3f}" for name, x in found["nrmse"].items()))
    print(f"latency: {latency_ms:.2f} ms a window (median, batch 1, {args.device})")
    print(f"done: overall NRMSE {value:.3f} on held-out data; "
          f"trivial baseline {metadata['measure']['baseline']:.3f}")  # fmt: skip


if __name__ == "__main__":
    main()
