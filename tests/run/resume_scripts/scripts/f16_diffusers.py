"""diffusers' examples: --resume_from_checkpoint latest or a folder; older checkpoints are deleted before saving."""
import argparse
import os
import shutil
import time

import torch
from accelerate import Accelerator


def parse_args():
    parser = argparse.ArgumentParser(description="Simple example of a training script.")
    parser.add_argument("--output_dir", type=str, default="sd-model-finetuned")
    parser.add_argument("--max_train_steps", type=int, default=60)
    parser.add_argument("--checkpointing_steps", type=int, default=10)
    parser.add_argument("--checkpoints_total_limit", type=int, default=2)
    parser.add_argument("--resume_from_checkpoint", type=str, default=None,
                        help='Whether to resume from a previous checkpoint. Use a path, or `"latest"`.')
    return parser.parse_args()


def main():
    args = parse_args()
    accelerator = Accelerator()
    if accelerator.is_main_process and args.output_dir is not None:
        os.makedirs(args.output_dir, exist_ok=True)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    unet = torch.nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(unet.parameters(), lr=1e-2)
    unet, optimizer = accelerator.prepare(unet, optimizer)
    global_step = 0
    if args.resume_from_checkpoint:
        if args.resume_from_checkpoint != "latest":
            path = os.path.basename(args.resume_from_checkpoint)
        else:
            dirs = os.listdir(args.output_dir)
            dirs = [d for d in dirs if d.startswith("checkpoint")]
            dirs = sorted(dirs, key=lambda x: int(x.split("-")[1]))
            path = dirs[-1] if len(dirs) > 0 else None
        if path is None:
            accelerator.print(f"Checkpoint '{args.resume_from_checkpoint}' does not exist. Starting a new training run.")
            args.resume_from_checkpoint = None
        else:
            accelerator.print(f"Resuming from checkpoint {path}")
            accelerator.load_state(os.path.join(args.output_dir, path))
            global_step = int(path.split("-")[1])
    while global_step < args.max_train_steps:
        x = torch.randn(8, 4, generator=torch.Generator().manual_seed(global_step))
        loss = (unet(x) - x.sum(1, keepdim=True)).square().mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        global_step += 1
        time.sleep(0.05)
        if global_step % args.checkpointing_steps == 0:
            if args.checkpoints_total_limit is not None:
                checkpoints = [d for d in os.listdir(args.output_dir) if d.startswith("checkpoint")]
                checkpoints = sorted(checkpoints, key=lambda x: int(x.split("-")[1]))
                if len(checkpoints) >= args.checkpoints_total_limit:
                    num_to_remove = len(checkpoints) - args.checkpoints_total_limit + 1
                    for removing_checkpoint in checkpoints[0:num_to_remove]:
                        shutil.rmtree(os.path.join(args.output_dir, removing_checkpoint))
            save_path = os.path.join(args.output_dir, f"checkpoint-{global_step}")
            accelerator.save_state(save_path)
            accelerator.print(f"Saved state to {save_path}")
    torch.save(unet.state_dict(), "final.pt")


if __name__ == "__main__":
    main()
