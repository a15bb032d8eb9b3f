"""Stand-in: save_state and load_state with a folder of model.safetensors-like and optimizer.bin files."""
import os
import pickle

import torch


class Accelerator:
    is_main_process = True
    device = "cpu"

    def __init__(self, **_):
        self._objects = []

    def prepare(self, *objects):
        self._objects = list(objects)
        return objects

    def backward(self, loss):
        loss.backward()

    def print(self, *words):
        print(*words, flush=True)

    def wait_for_everyone(self):
        pass

    def save_state(self, folder):
        os.makedirs(folder, exist_ok=True)
        model, optimizer = self._objects[:2]
        torch.save(model.state_dict(), os.path.join(folder, "pytorch_model.bin"))
        torch.save(optimizer.state_dict(), os.path.join(folder, "optimizer.bin"))
        with open(os.path.join(folder, "random_states_0.pkl"), "wb") as f:
            pickle.dump({"step": 0}, f)

    def load_state(self, folder):
        model, optimizer = self._objects[:2]
        model.load_state_dict(torch.load(os.path.join(folder, "pytorch_model.bin")))
        optimizer.load_state_dict(torch.load(os.path.join(folder, "optimizer.bin")))
