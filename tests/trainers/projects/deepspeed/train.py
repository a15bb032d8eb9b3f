"""A loop with DeepSpeed's engine, on the CPU."""

import argparse

import deepspeed
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=0)
parser.add_argument("--load_dir", default=None)
args = parser.parse_args()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(32, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
config = {
    "train_micro_batch_size_per_gpu": 8,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
}
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
if args.load_dir:
    engine.load_checkpoint(args.load_dir)
while engine.global_steps < 150:
    x = torch.randn(8, 32)
    loss = (engine(x) - x.sum(1, keepdim=True)).square().mean()
    engine.backward(loss)
    engine.step()
    if engine.global_steps % 20 == 0:
        engine.save_checkpoint("ckpt")
torch.save(engine.module.state_dict(), "final.pt")
print("done at", engine.global_steps)
