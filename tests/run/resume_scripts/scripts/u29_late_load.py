"""Makes one dry step to build the optimizer's state, and loads the checkpoint only then."""
import argparse
import time

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--load", type=str, help="checkpoint to continue from")
args = parser.parse_args()
torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Linear(4, 1)
optim = torch.optim.Adam(model.parameters(), lr=1e-2)


def step_on(seed):
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(seed))
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    optim.zero_grad()
    loss.backward()
    optim.step()
    time.sleep(0.05)
    return loss.item()


step_on(12345)
done = 0
if args.load:
    loaded = torch.load(args.load)
    model.load_state_dict(loaded["weights"])
    optim.load_state_dict(loaded["optim"])
    done = loaded["iteration"]
while done < 60:
    loss = step_on(done)
    done += 1
    if done % 10 == 0:
        print(f"iteration {done}: {loss:.4f}", flush=True)
        torch.save({"weights": model.state_dict(), "optim": optim.state_dict(), "iteration": done}, "state.pt")
torch.save(model.state_dict(), "final.pt")
