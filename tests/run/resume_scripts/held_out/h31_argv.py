"""Looks into sys.argv itself: `continue` is a bare word."""
import sys
import time
from glob import glob

import torch

STEPS = 60


def snapshot(step, net, opt):
    torch.save([step, net.state_dict(), opt.state_dict()], f"snap_{step:04d}.pt")


def main(argv):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    net = torch.nn.Linear(4, 1)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-2)
    begin = 0
    if "continue" in argv:
        begin, weights, moments = torch.load(sorted(glob("snap_*.pt"))[-1])
        net.load_state_dict(weights)
        opt.load_state_dict(moments)
    for step in range(begin + 1, STEPS + 1):
        x = torch.randn(8, 4, generator=torch.Generator().manual_seed(step))
        loss = (net(x) - x.sum(1, keepdim=True)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        time.sleep(0.05)
        if step % 10 == 0:
            print(step, loss.item(), flush=True)
            snapshot(step, net, opt)
    torch.save(net.state_dict(), "final.pt")


main(sys.argv[1:])
