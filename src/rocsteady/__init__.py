"""rocsteady gets PyTorch training runs finished on AMD GPUs.

Beside the command there is a library for training scripts, in ``rocsteady.training``. It needs
torch, and is loaded when one of its names is first asked for::

    loop = rocsteady.Loop(model=model, optimizer=optimizer, loader=loader, epochs=10)
"""

from __future__ import annotations

TYPE_CHECKING = False  # as type checkers know it; importing typing takes longer than the rest
if TYPE_CHECKING:
    from rocsteady.training import Checkpointer, Loop

__version__ = "0.1.0.dev0"

__all__ = ["Checkpointer", "Loop", "__version__"]


def __getattr__(name: str) -> object:
    if name in ("Checkpointer", "Loop"):
        from rocsteady import training  # noqa: PLC0415 - it imports torch

        return getattr(training, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
