"""The work is done and the model is written, but the interpreter does not end.

A thread that nobody told to stop keeps it (or with `--atexit` a handler that never returns). A
person sees "finished", model.pt complete, and no prompt.
"""

from __future__ import annotations

import atexit
import queue
import sys
import threading

import torch
from ordinary import make_loader, make_model, make_optimizer, train

UPLOADS: queue.Queue[str] = queue.Queue()


def upload_for_ever() -> None:
    while True:
        UPLOADS.get()


def main() -> None:
    if "--atexit" in sys.argv:
        atexit.register(upload_for_ever)
    else:
        threading.Thread(target=upload_for_ever).start()
    model = make_model()
    step = train(model, make_optimizer(model), make_loader())
    torch.save(model.state_dict(), "model.pt")
    print(f"finished {step} steps, model.pt written\nDONE", flush=True)


if __name__ == "__main__":
    main()
