"""accelerate's complete example: save_state per epoch, --resume_from_checkpoint DIR."""
import argparse
import os
import time

import torch
from accelerate import Accelerator


def training_function(args):
    accelerator = Accelerator()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(params=model.parameters(), lr=1e-2)
    model, optimizer = accelerator.prepare(model, optimizer)
    overall_step = 0
    starting_epoch = 0
    if args.resume_from_checkpoint:
        if args.resume_from_checkpoint is not None or args.resume_from_checkpoint != "":
            accelerator.print(f"Resumed from checkpoint: {args.resume_from_checkpoint}")
            accelerator.load_state(args.resume_from_checkpoint)
            path = os.path.basename(args.resume_from_checkpoint)
        training_difference = os.path.splitext(path)[0]
        if "epoch" in training_difference:
            starting_epoch = int(training_difference.replace("epoch_", "")) + 1
    for epoch in range(starting_epoch, args.num_epochs):
        for i in range(10):
            x = torch.randn(8, 4, generator=torch.Generator().manual_seed(epoch * 10 + i))
            loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            overall_step += 1
            time.sleep(0.05)
        accelerator.print(f"epoch {epoch}: {loss.item():.4f}")
        if args.checkpointing_steps == "epoch":
            output_dir = f"epoch_{epoch}"
            if args.output_dir is not None:
                output_dir = os.path.join(args.output_dir, output_dir)
            accelerator.save_state(output_dir)
    torch.save(model.state_dict(), "final.pt")


def main():
    parser = argparse.ArgumentParser(description="Simple example of training script.")
    parser.add_argument("--checkpointing_steps", type=str, default="epoch")
    parser.add_argument("--output_dir", type=str, default=".")
    parser.add_argument("--num_epochs", type=int, default=6)
    parser.add_argument("--resume_from_checkpoint", type=str, default=None,
                        help="If the training should continue from a checkpoint folder.")
    training_function(parser.parse_args())


if __name__ == "__main__":
    main()
