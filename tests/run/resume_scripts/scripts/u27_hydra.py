"""Hydra: key=value overrides of conf/config.yaml."""
import os
import time

import hydra
import torch
from omegaconf import DictConfig


@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(cfg: DictConfig) -> None:
    torch.manual_seed(cfg.seed)
    torch.set_num_threads(1)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.optim.lr)
    start_step = 0
    if cfg.train.resume_from is not None:
        checkpoint = torch.load(cfg.train.resume_from)
        model.load_state_dict(checkpoint["state_dict"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        start_step = checkpoint["global_step"]
    os.makedirs(cfg.train.output_dir, exist_ok=True)
    for step in range(start_step, cfg.train.steps):
        x = torch.randn(8, 4, generator=torch.Generator().manual_seed(step))
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.05)
        if (step + 1) % cfg.train.save_every == 0:
            print(f"step {step + 1}: {loss.item():.4f}", flush=True)
            torch.save({"state_dict": model.state_dict(), "optimizer": optimizer.state_dict(), "global_step": step + 1},
                       os.path.join(cfg.train.output_dir, "checkpoint.ckpt"))
    torch.save(model.state_dict(), "final.pt")


if __name__ == "__main__":
    main()
