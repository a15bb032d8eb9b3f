"""Stand-in: Trainer.fit(ckpt_path=) with lightning_logs/version_N/checkpoints/epoch=E-step=S.ckpt."""
import os
import time

import torch


class LightningModule(torch.nn.Module):
    pass


class Trainer:
    def __init__(self, max_epochs=6, default_root_dir=".", **_):
        self.max_epochs, self.root = max_epochs, default_root_dir

    def _folder(self):
        base = os.path.join(self.root, "lightning_logs")
        os.makedirs(base, exist_ok=True)
        number = len(os.listdir(base))
        return os.path.join(base, f"version_{number}", "checkpoints")

    def _last(self):
        base = os.path.join(self.root, "lightning_logs")
        found = [os.path.join(p, n) for p, _, names in os.walk(base) for n in names if n.endswith(".ckpt")]
        return max(found, key=os.path.getmtime, default=None)

    def fit(self, model, ckpt_path=None):
        torch.set_num_threads(1)
        optimizer, epoch, step = model.configure_optimizers(), 0, 0
        if ckpt_path == "last":
            ckpt_path = self._last()
        if ckpt_path:
            state = torch.load(ckpt_path, weights_only=False)
            model.load_state_dict(state["state_dict"])
            optimizer.load_state_dict(state["optimizer_states"][0])
            epoch, step = state["epoch"] + 1, state["global_step"]
        where, before = self._folder(), None
        os.makedirs(where)
        while epoch < self.max_epochs:
            for i in range(10):
                x = torch.randn(8, 4, generator=torch.Generator().manual_seed(epoch * 10 + i))
                loss = model.training_step((x, x.sum(1, keepdim=True)), i)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                step += 1
                time.sleep(0.05)
            print(f"Epoch {epoch}: loss={loss.item():.4f}", flush=True)
            path = os.path.join(where, f"epoch={epoch}-step={step}.ckpt")
            torch.save({"epoch": epoch, "global_step": step, "pytorch-lightning_version": "2.6.6",
                        "state_dict": model.state_dict(), "optimizer_states": [optimizer.state_dict()], "loops": {}}, path)
            if before:
                os.remove(before)
            before, epoch = path, epoch + 1
