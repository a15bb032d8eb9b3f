"""Weights and optimizer in two files; a text file names the pair to go on from."""
import json
import time
from pathlib import Path

import torch

WORK = Path("work")
POINTER = WORK / "LATEST"


class Session:
    def __init__(self):
        torch.manual_seed(0)
        torch.set_num_threads(1)
        self.net = torch.nn.Linear(4, 1)
        self.opt = torch.optim.Adam(self.net.parameters(), lr=1e-2)
        self.clock = 0
        try:
            tag = json.loads(POINTER.read_text())["tag"]
        except FileNotFoundError:
            return
        self.net.load_state_dict(torch.load(WORK / f"{tag}.weights.pt"))
        self.opt.load_state_dict(torch.load(WORK / f"{tag}.optim.pt"))
        self.clock = int(tag.split("-")[1])

    def keep(self):
        WORK.mkdir(exist_ok=True)
        tag = f"at-{self.clock}"
        torch.save(self.net.state_dict(), WORK / f"{tag}.weights.pt")
        torch.save(self.opt.state_dict(), WORK / f"{tag}.optim.pt")
        POINTER.write_text(json.dumps({"tag": tag}))

    def tick(self):
        x = torch.randn(8, 4, generator=torch.Generator().manual_seed(self.clock))
        loss = (self.net(x) - x.sum(1, keepdim=True)).square().mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.clock += 1
        time.sleep(0.05)
        return loss.item()


session = Session()
while session.clock < 60:
    value = session.tick()
    if session.clock % 10 == 0:
        print("clock", session.clock, "loss", value, flush=True)
        session.keep()
torch.save(session.net.state_dict(), "final.pt")
