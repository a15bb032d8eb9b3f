"""CleanRL: arguments are a dataclass read by tyro."""
import os
import time
from dataclasses import dataclass
from typing import Optional

import torch
import tyro


@dataclass
class Args:
    exp_name: str = os.path.basename(__file__)[: -len(".py")]
    """the name of this experiment"""
    seed: int = 1
    total_timesteps: int = 60
    learning_rate: float = 2.5e-4
    save_interval: int = 10
    resume: Optional[str] = None
    """a checkpoint of an earlier run to continue from"""


if __name__ == "__main__":
    args = tyro.cli(Args)
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    agent = torch.nn.Linear(4, 1)
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5)
    global_step = 0
    if args.resume is not None:
        ckpt = torch.load(args.resume, map_location="cpu")
        agent.load_state_dict(ckpt["agent"])
        optimizer.load_state_dict(ckpt["optimizer"])
        global_step = ckpt["global_step"]
    os.makedirs(f"runs/{args.exp_name}__{args.seed}", exist_ok=True)
    while global_step < args.total_timesteps:
        obs = torch.randn(8, 4, generator=torch.Generator().manual_seed(global_step))
        loss = (agent(obs) - obs.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        global_step += 1
        time.sleep(0.05)
        if global_step % 5 == 0:
            print(f"global_step={global_step}, episodic_return={-loss.item():.4f}", flush=True)
        if global_step % args.save_interval == 0:
            path = f"runs/{args.exp_name}__{args.seed}/agent_{global_step}.pt"
            torch.save({"agent": agent.state_dict(), "optimizer": optimizer.state_dict(), "global_step": global_step}, path)
    torch.save(agent.state_dict(), "final.pt")
