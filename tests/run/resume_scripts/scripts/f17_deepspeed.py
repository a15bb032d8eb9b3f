"""DeepSpeed: engine.save_checkpoint writes global_stepN beside a file latest; --load_dir names the folder."""
import argparse
import time

import deepspeed
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--save_dir", default="ds_checkpoints")
parser.add_argument("--load_dir", default=None)
parser.add_argument("--steps", type=int, default=60)
parser = deepspeed.add_config_arguments(parser)
args = parser.parse_args()
torch.manual_seed(0)
torch.set_num_threads(1)
net = torch.nn.Linear(4, 1)
model_engine, optimizer, _, _ = deepspeed.initialize(args=args, model=net)
step = 0
if args.load_dir is not None:
    _, client_sd = model_engine.load_checkpoint(args.load_dir)
    step = client_sd["step"]
for step in range(step, args.steps):
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(step))
    loss = (model_engine(x) - x.sum(1, keepdim=True)).square().mean()
    model_engine.backward(loss)
    model_engine.step()
    time.sleep(0.05)
    if (step + 1) % 10 == 0:
        print(f"step {step + 1} loss {loss.item():.4f}", flush=True)
        model_engine.save_checkpoint(args.save_dir, client_state={"step": step + 1})
torch.save(net.state_dict(), "final.pt")
