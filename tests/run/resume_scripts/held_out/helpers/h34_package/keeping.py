"""Saves and restores anything that has a state_dict."""
from pathlib import Path

import torch


class Keeper:
    def __init__(self, folder, **parts):
        self.folder, self.parts = Path(folder), parts

    def save(self, iteration):
        self.folder.mkdir(parents=True, exist_ok=True)
        state = {name: part.state_dict() for name, part in self.parts.items()}
        torch.save({**state, "iteration": iteration}, self.folder / f"iter_{iteration:07d}.pth")

    def restore(self):
        files = sorted(self.folder.glob("iter_*.pth"))
        if not files:
            return 0
        state = torch.load(files[-1])
        for name, part in self.parts.items():
            part.load_state_dict(state[name])
        return state["iteration"]
