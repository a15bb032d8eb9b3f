"""Stand-in: an engine whose checkpoints are global_stepN folders beside a file latest."""
import os

import torch


def add_config_arguments(parser):
    parser.add_argument("--deepspeed", action="store_true")
    parser.add_argument("--deepspeed_config", default=None)
    return parser


def initialize(args=None, model=None, **_):
    engine = Engine(model)
    return engine, engine.optimizer, None, None


class Engine:
    def __init__(self, model):
        self.module, self.global_steps = model, 0
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    def __call__(self, x):
        return self.module(x)

    def backward(self, loss):
        loss.backward()

    def step(self):
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.global_steps += 1

    def save_checkpoint(self, save_dir, tag=None, client_state=None):
        tag = tag or f"global_step{self.global_steps}"
        where = os.path.join(save_dir, tag)
        os.makedirs(where, exist_ok=True)
        torch.save({"module": self.module.state_dict(), "global_steps": self.global_steps, **(client_state or {})},
                   os.path.join(where, "mp_rank_00_model_states.pt"))
        torch.save({"optimizer_state_dict": self.optimizer.state_dict()},
                   os.path.join(where, "zero_pp_rank_0_mp_rank_00_optim_states.pt"))
        with open(os.path.join(save_dir, "latest"), "w") as f:
            f.write(tag)

    def load_checkpoint(self, load_dir, tag=None):
        if tag is None:
            with open(os.path.join(load_dir, "latest")) as f:
                tag = f.read().strip()
        where = os.path.join(load_dir, tag)
        state = torch.load(os.path.join(where, "mp_rank_00_model_states.pt"))
        self.module.load_state_dict(state["module"])
        optim = torch.load(os.path.join(where, "zero_pp_rank_0_mp_rank_00_optim_states.pt"))
        self.optimizer.load_state_dict(optim["optimizer_state_dict"])
        self.global_steps = state["global_steps"]
        return where, state
