"""Reinforcement learning style: a replay buffer, checkpoints as folders, --restore takes a number."""
import argparse
import collections
import os
import pickle
import time

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--logdir", default="logdir")
parser.add_argument("--restore", type=int, default=-1, help="number of the checkpoint, -1: none")
flags = parser.parse_args()
torch.manual_seed(0)
torch.set_num_threads(1)
policy = torch.nn.Linear(4, 1)
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
buffer = collections.deque(maxlen=100)
frames = 0
if flags.restore >= 0:
    where = os.path.join(flags.logdir, f"ckpt_{flags.restore}")
    saved = torch.load(os.path.join(where, "policy.pt"))
    policy.load_state_dict(saved["policy"])
    optimizer.load_state_dict(saved["optimizer"])
    frames = saved["frames"]
    with open(os.path.join(where, "buffer.pkl"), "rb") as file:
        buffer = pickle.load(file)
while frames < 60:
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(frames))
    buffer.append(x.numpy().tolist())
    loss = (policy(x) - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    frames += 1
    time.sleep(0.05)
    if frames % 10 == 0:
        where = os.path.join(flags.logdir, f"ckpt_{frames}")
        os.makedirs(where)
        torch.save({"policy": policy.state_dict(), "optimizer": optimizer.state_dict(), "frames": frames},
                   os.path.join(where, "policy.pt"))
        with open(os.path.join(where, "buffer.pkl"), "wb") as file:
            pickle.dump(buffer, file)
        print("frames", frames, flush=True)
torch.save(policy.state_dict(), "final.pt")
