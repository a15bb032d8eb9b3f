"""A loop with accelerate, in the form of the training scripts of diffusers."""

import argparse
import os
import shutil

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from diffusers import DDPMScheduler, UNet2DModel
from tqdm.auto import tqdm

parser = argparse.ArgumentParser()
parser.add_argument("--output_dir", default="out")
parser.add_argument("--resume_from_checkpoint", default=None)
parser.add_argument("--checkpointing_steps", type=int, default=15)
parser.add_argument("--checkpoints_total_limit", type=int, default=None)
parser.add_argument("--num_train_epochs", type=int, default=3)
args = parser.parse_args()


class Pictures(torch.utils.data.Dataset):
    def __len__(self):
        return 120

    def __getitem__(self, index):
        torch.manual_seed(index)
        return torch.rand(1, 16, 16) * 2 - 1


accelerator = Accelerator(cpu=True)
os.makedirs(args.output_dir, exist_ok=True)
set_seed(0)
model = UNet2DModel(
    sample_size=16, in_channels=1, out_channels=1, layers_per_block=1, block_out_channels=(8, 16),
    norm_num_groups=4, down_block_types=("DownBlock2D", "DownBlock2D"),
    up_block_types=("UpBlock2D", "UpBlock2D"),
)
noise_scheduler = DDPMScheduler(num_train_timesteps=100)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
loader = torch.utils.data.DataLoader(Pictures(), batch_size=4, shuffle=True, num_workers=1)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
per_epoch = len(loader)
max_train_steps = args.num_train_epochs * per_epoch
global_step, first_epoch = 0, 0
if args.resume_from_checkpoint:
    if args.resume_from_checkpoint != "latest":
        path = os.path.basename(args.resume_from_checkpoint)
    else:
        there = [name for name in os.listdir(args.output_dir) if name.startswith("checkpoint")]
        path = max(there, key=lambda name: int(name.split("-")[1])) if there else None
    if path is None:
        print(f"Checkpoint '{args.resume_from_checkpoint}' does not exist. Starting a new run.")
    else:
        print(f"Resuming from checkpoint {path}")
        accelerator.load_state(os.path.join(args.output_dir, path))
        global_step = int(path.split("-")[1])
        first_epoch = global_step // per_epoch
bar = tqdm(range(max_train_steps), initial=global_step, desc="Steps")
for epoch in range(first_epoch, args.num_train_epochs):
    skip = global_step % per_epoch if epoch == first_epoch else 0
    for images in accelerator.skip_first_batches(loader, skip) if skip else loader:
        noise = torch.randn_like(images)
        timesteps = torch.randint(0, 100, (images.shape[0],))
        predicted = model(noise_scheduler.add_noise(images, noise, timesteps), timesteps).sample
        loss = torch.nn.functional.mse_loss(predicted, noise)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        bar.update(1)
        global_step += 1
        if global_step % args.checkpointing_steps == 0:
            if args.checkpoints_total_limit is not None:
                there = sorted(
                    (name for name in os.listdir(args.output_dir) if name.startswith("checkpoint")),
                    key=lambda name: int(name.split("-")[1]),
                )
                for name in there[: max(0, len(there) - args.checkpoints_total_limit + 1)]:
                    shutil.rmtree(os.path.join(args.output_dir, name))
            accelerator.save_state(os.path.join(args.output_dir, f"checkpoint-{global_step}"))
        bar.set_postfix(loss=loss.item())
accelerator.unwrap_model(model).save_pretrained("final")
print("done at", global_step)
