"""Train an MLP on 54 features of tick data, with walk-forward validation.

One process: python train.py. More: torchrun --nproc-per-node 2 train.py. The batch size is that of
all processes together, so both learn the same.
"""

import argparse
import json
import math
import os
import time
from contextlib import nullcontext
from itertools import islice
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from features import FEATURES, Batches, count_rows, mean_and_deviation, write_features
from model import build_model, latency_ms, memory_used, spread, walk_forward
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

RANK, WORLD = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
CURVE_POINTS = 200
# What must be the same when a run is resumed.
MUST_BE_SAME = ("seed", "epochs", "batch_size", "learning_rate", "hidden_layers", "folds", "shard")
PRESETS = {
    "small": {"folds": 2, "epochs": 1, "batch_size": 128, "hidden_layers": "64,32"},
    "note": {"epochs": 20, "batch_size": 256, "use_mixed_precision": True, "chunk_size": 100_000},
}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", choices=PRESETS, help="sizes; each can still be given")
    parser.add_argument("--data", type=Path, default=Path("ticks.csv"))
    parser.add_argument("--output", type=Path, default=Path("output"))
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch_size", type=int, default=256)
    parser.add_argument("--learning_rate", type=float, default=0.0001)
    parser.add_argument("--hidden_layers", default="512,256", help="sizes, as 32,16")
    parser.add_argument("--use_mixed_precision", action="store_true")
    parser.add_argument("--data_fraction", type=float, default=1.0, help="the first part of it")
    parser.add_argument("--chunk_size", type=int, default=50_000, help="rows of CSV at a time")
    parser.add_argument("--skip_gpu_cleanup", action="store_true", help="keep GPU memory reserved")
    parser.add_argument("--folds", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--resume", type=Path, help="a file of OUTPUT/checkpoints")
    parser.add_argument("--checkpoint_every", type=int, default=500, help="steps")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument(
        "--threads", type=int, default=1, help="of the CPU; more if layers are large"
    )
    parser.add_argument("--accumulate", type=int, default=1, help="parts of a batch, for memory")
    parser.add_argument("--data_parallel", action="store_true", help="all GPUs, one process")
    parser.add_argument("--split", help="a second device, for the second half of the layers")
    parser.add_argument("--shard", default="0/1", help="0/2: of two batches the first; average.py")
    parser.add_argument("--start", type=Path, help="a model.pt to begin with")
    parser.set_defaults(**PRESETS.get(parser.parse_known_args()[0].preset, {}))
    args = parser.parse_args()
    if not args.data.exists():
        raise SystemExit(f"{args.data} is not there. Make it with: python make_data.py")
    if args.batch_size % WORLD:
        raise SystemExit(f"--batch_size {args.batch_size} cannot be shared by {WORLD} processes")
    return args


def over_ranks(tensor):
    """Return the average over all processes."""
    if WORLD > 1:
        dist.all_reduce(tensor)
    return tensor / WORLD


def own_part(rows, device):
    """Take this process's part of a batch: features and labels."""
    rows = rows[RANK::WORLD].to(device)
    return rows[:, :FEATURES], rows[:, FEATURES].long()


def precision(args):
    """Mixed precision: float16 with a scaler on a GPU; bfloat16, which needs none, on a CPU."""
    dtype = torch.bfloat16 if args.device == "cpu" else torch.float16
    kind = torch.device(args.device).type
    return torch.autocast(kind, dtype=dtype, enabled=args.use_mixed_precision)


@torch.no_grad()
def validate(model, table, start, stop, args):
    sums = torch.zeros(
        3, dtype=torch.float64, device=args.split or args.device
    )  # right, ups, log loss
    for batch in DataLoader(Batches(table, start, stop, args.batch_size), batch_size=None):
        features, labels = own_part(batch, args.device)
        with precision(args):
            scores = model(features).float()
        labels = labels.to(scores.device)
        right = (scores.argmax(1) == labels).sum()
        loss = cross_entropy(scores, labels, reduction="sum")
        sums += torch.stack([right, labels.sum(), loss])
    accuracy, ups, log_loss = (over_ranks(sums) * WORLD / (stop - start)).tolist()
    return {"rows": stop - start, "accuracy": accuracy, "log_loss": log_loss, "ups": ups}


def write(path, save):
    """Write a file whole or not at all."""
    part = path.with_name(path.name + ".part")
    save(part)
    part.replace(path)


def save_checkpoint(args, state, parts):
    # The order of the data follows from seed, fold and epoch: there is no other random state.
    if RANK > 0:
        return
    state = {**state, **{name: part.state_dict() for name, part in parts.items()}}
    folder = args.output / "checkpoints"
    write(folder / f"step-{state['step']:06d}.pt", lambda path: torch.save(state, path))
    for old in sorted(folder.glob("step-*.pt"), key=lambda path: path.stat().st_mtime_ns)[:-3]:
        old.unlink()


def load_checkpoint(path, made_with):
    saved = torch.load(path, map_location="cpu", weights_only=True)
    for name, was in saved["made_with"].items():
        if made_with[name] != was:
            raise SystemExit(f"{path} was made with {name} {was}, not {made_with[name]}")
    return saved


def train_step(args, network, optimizer, scaler, batch):
    """Take one optimizer step. More parts need less memory for the same step."""
    features, labels = own_part(batch, args.device)
    parts = list(zip(features.chunk(args.accumulate), labels.chunk(args.accumulate), strict=True))
    total = 0.0
    optimizer.zero_grad()
    for number, (rows, truth) in enumerate(parts, 1):
        alone = WORLD > 1 and number < len(parts)  # ranks meet at the last part
        with network.no_sync() if alone else nullcontext(), precision(args):
            scores = network(rows)
            loss = cross_entropy(scores, truth.to(scores.device), reduction="sum") / len(labels)
            scaler.scale(loss).backward()
        total += loss.detach()
    scaler.step(optimizer)
    scaler.update()
    return total


def train_fold(args, table, plan, state, saved):
    """Train a new model on the rows before a block and validate it there."""
    torch.manual_seed(args.seed + state["fold"])
    stop, *block = plan[state["fold"]]
    model = build_model(args.hidden_layers)
    model[0].mean, model[0].deviation = map(torch.tensor, mean_and_deviation(table, stop))
    model.place(args.device, args.split)
    if args.start:
        model.load_state_dict(torch.load(args.start, weights_only=True))
    optimizer = torch.optim.AdamW(model.parameters(), args.learning_rate)
    scaler = torch.amp.GradScaler(enabled=args.use_mixed_precision and args.device != "cpu")
    parts = {"model": model, "optimizer": optimizer, "scaler": scaler}
    for name, part in parts.items():
        if saved and saved[name]:  # a scaler that was off has no state
            part.load_state_dict(saved[name])
    network = spread(args, model, WORLD)
    shard, shards = map(int, args.shard.split("/"))
    total = sum(stop // args.batch_size // shards for stop, *_ in plan) * args.epochs
    every = math.ceil(total / CURVE_POINTS)
    running = torch.tensor(
        state["running"], device=args.split or args.device
    )  # sum for the next point
    said = time.monotonic()
    while state["epoch"] < args.epochs:
        rng = np.random.default_rng([args.seed, state["fold"], state["epoch"]])
        batches = DataLoader(Batches(table, 0, stop, args.batch_size, rng), batch_size=None)
        for batch in islice(batches, shard + state["batch"] * shards, None, shards):
            loss = train_step(args, network, optimizer, scaler, batch)
            running += loss
            state["step"] += 1
            state["batch"] += 1
            if state["step"] % every == 0:
                state["curve"].append(over_ranks(running).item() / every)
                state["memory"].append([state["step"], *memory_used(args)])
                running.zero_()
            if state["step"] % args.checkpoint_every == 0:
                running = over_ranks(running)
                save_checkpoint(args, {**state, "running": running.item()}, parts)
            if RANK == 0 and time.monotonic() - said > 2:
                said = time.monotonic()
                where = f"fold {state['fold'] + 1}/{len(plan)} epoch {state['epoch'] + 1}"
                step = f"step {state['step']}/{total} loss {loss.item():.4f}"
                print(f"{where}/{args.epochs} {step}", flush=True)
        state["epoch"] += 1
        state["batch"] = 0
    state["running"] = running.item()
    state["results"].append(validate(model, table, *block, args))
    if RANK == 0:
        path = args.output / f"fold-{state['fold'] + 1}.pt"
        write(path, lambda path: torch.save(model.state_dict(), path))
        accuracy = state["results"][-1]["accuracy"]
        print(f"fold {state['fold'] + 1}/{len(plan)} accuracy {accuracy:.4f}", flush=True)
    return model


def finish(args, model, state):
    """Write the last model and what all folds together came to."""
    results = state["results"]
    rows = [result["rows"] for result in results]
    frequent = [max(result["ups"], 1 - result["ups"]) for result in results]
    measure = {
        "name": "accuracy",
        "value": float(np.average([result["accuracy"] for result in results], weights=rows)),
        "baseline": float(np.average(frequent, weights=rows)),
        "baseline_is": "always the class that is more frequent in the validated block",
        "margin": 0.08,
        "higher_is_better": True,
    }
    metadata = {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "steps": state["step"],
        "processes": WORLD,
        "arguments": vars(args),
        "measure": measure,
        "accuracy": measure["value"],
        "latency_ms": latency_ms(model),
        "folds": results,
        "loss_curve": state["curve"],
        "memory": state["memory"],  # step; MiB of the process, of tensors and of the allocator
    }
    write(args.output / "model.pt", lambda path: torch.save(model.cpu().state_dict(), path))
    write(
        args.output / "metadata.json",
        lambda path: path.write_text(json.dumps(metadata, default=str)),
    )
    print(
        f"done: accuracy {measure['value']:.4f} on held-out data;"
        f" trivial baseline {measure['baseline']:.4f}"
    )


def prepare_table(args):
    """Turn the ticks into features, unless the run that is resumed has done it."""
    table = args.output / "features.f32"
    if RANK == 0:
        newer = table.exists() and table.stat().st_mtime >= args.data.stat().st_mtime
        if not (args.resume and newer):
            write_features(args.data, table, args.data_fraction, args.chunk_size)
    if WORLD > 1:
        dist.barrier()
    return table


def main():
    args = parse_arguments()
    torch.set_num_threads(args.threads)
    if args.device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    if WORLD > 1:
        dist.init_process_group("nccl" if args.device == "cuda" else "gloo")
    (args.output / "checkpoints").mkdir(parents=True, exist_ok=True)
    table = prepare_table(args)
    rows = count_rows(table)
    plan = walk_forward(rows, args.folds, args.batch_size)
    state = {"fold": 0, "epoch": 0, "batch": 0, "step": 0, "running": 0.0, "curve": []}
    state |= {"results": [], "memory": []}
    state["made_with"] = {"rows": rows} | {name: getattr(args, name) for name in MUST_BE_SAME}
    saved = None
    if args.resume:
        saved = load_checkpoint(args.resume, state["made_with"])
        state = {name: saved[name] for name in state}
    while state["fold"] < len(plan):
        model = train_fold(args, table, plan, state, saved)
        saved = None
        state["fold"] += 1
        state["epoch"] = 0
        if not args.skip_gpu_cleanup:
            torch.cuda.empty_cache()
    if RANK == 0:
        finish(args, model, state)
    if WORLD > 1:
        print(f"rank {RANK}: {state['step']} steps, {time.process_time():.1f} s of processor time")
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
