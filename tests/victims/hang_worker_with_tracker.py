"""The hang of hang_worker_semaphore.py, with much that still moves around it.

A tracker process writes to its file every 5 s, and a thread redraws a bar so that its clock goes
on. A person sees a bar that lives and a dashboard that is up to date; only its counter stands.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

from hang_worker_semaphore import make_archive_loader
from knobs import STEPS
from ordinary import make_model, make_optimizer, train_step

TRACKER = """
import os, sys, time
parent = os.getppid()
with open("tracker.log", "a") as log:
    while os.getppid() == parent:
        print(time.time(), "cpu", os.getloadavg()[0], file=log, flush=True)
        time.sleep(5)
"""


class Bar:
    """A progress bar whose clock goes on between the steps."""

    def __init__(self, total: int) -> None:
        self.total, self.step, self.began = total, 0, time.monotonic()
        threading.Thread(target=self.refresh, daemon=True).start()

    def refresh(self) -> None:
        while True:
            clock = time.strftime("%M:%S", time.gmtime(time.monotonic() - self.began))
            part = 100 * self.step // self.total
            sys.stderr.write(
                f"\r{part:3d}%|{'#' * (part // 5):20}| {self.step}/{self.total} [{clock}]"
            )
            sys.stderr.flush()
            time.sleep(0.5)


def main() -> None:
    subprocess.Popen([sys.executable, "-c", TRACKER], env=dict(os.environ, TRACKER="1"))
    loader = make_archive_loader()
    model = make_model()
    optimizer = make_optimizer(model)
    bar = Bar(2 * STEPS)
    for x, y in loader:
        train_step(model, optimizer, x, y)
        bar.step += 1


if __name__ == "__main__":
    main()
