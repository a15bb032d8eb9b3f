"""`fit` begins, `resume FILE` goes on: two subcommands."""
import argparse
import time

import torch


def build():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Linear(4, 1)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def loop(model, optimizer, first):
    for step in range(first, 60):
        x = torch.randn(8, 4, generator=torch.Generator().manual_seed(step))
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.05)
        if step % 10 == 9:
            print("step", step + 1, flush=True)
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "next": step + 1}, "session.pt")
    torch.save(model.state_dict(), "final.pt")


def fit(args):
    model, optimizer = build()
    loop(model, optimizer, 0)


def resume(args):
    model, optimizer = build()
    state = torch.load(args.file)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    loop(model, optimizer, state["next"])


parser = argparse.ArgumentParser()
commands = parser.add_subparsers(required=True)
commands.add_parser("fit").set_defaults(call=fit)
again = commands.add_parser("resume")
again.add_argument("file")
again.set_defaults(call=resume)
args = parser.parse_args()
args.call(args)
