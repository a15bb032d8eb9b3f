"""nanoGPT: settings are module constants that configurator.py overrides with --name=value."""
import os
import time

import torch

out_dir = "out"
eval_interval = 10
always_save_checkpoint = True
init_from = "scratch"  # 'scratch' or 'resume' or 'gpt2*'
wandb_log = False
learning_rate = 1e-2
max_iters = 60
config_keys = [k for k, v in globals().items() if not k.startswith("_") and isinstance(v, (int, float, bool, str))]
exec(open("configurator.py").read())  # overrides from command line or config file

os.makedirs(out_dir, exist_ok=True)
torch.manual_seed(1337)
torch.set_num_threads(1)
iter_num = 0
best_val_loss = 1e9
model = torch.nn.Linear(4, 1)
if init_from == "scratch":
    print("Initializing a new model from scratch")
elif init_from == "resume":
    print(f"Resuming training from {out_dir}")
    ckpt_path = os.path.join(out_dir, "ckpt.pt")
    checkpoint = torch.load(ckpt_path, map_location="cpu")
    model.load_state_dict(checkpoint["model"])
    iter_num = checkpoint["iter_num"]
    best_val_loss = checkpoint["best_val_loss"]
optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
if init_from == "resume":
    optimizer.load_state_dict(checkpoint["optimizer"])
checkpoint = None
while True:
    if iter_num % eval_interval == 0 and iter_num > 0:
        print(f"step {iter_num}: saving checkpoint to {out_dir}", flush=True)
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "iter_num": iter_num,
                    "best_val_loss": best_val_loss}, os.path.join(out_dir, "ckpt.pt"))
    if iter_num >= max_iters:
        break
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(iter_num))
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    time.sleep(0.05)
    print(f"iter {iter_num}: loss {loss.item():.4f}", flush=True)
    iter_num += 1
torch.save(model.state_dict(), "final.pt")
