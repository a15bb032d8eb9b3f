"""The script never gets beyond its imports: one module waits for a thread that waits for it.

A person sees nothing at all: no line, no error, no CPU.
"""

from __future__ import annotations

from ordinary import make_loader, make_model, make_optimizer, train
from stuck_plugins import PLUGINS  # never returns


def main() -> None:
    model = make_model()
    train(model, make_optimizer(model), make_loader())
    print(PLUGINS, flush=True)


if __name__ == "__main__":
    main()
