"""What a training script imports from rocsteady.

It needs torch, and nothing else::

    from rocsteady_train import Loop

    loop = Loop(model=model, optimizer=optimizer, loader=loader, epochs=10)

torch is imported when one of these names is first used: the command reads the wire format here too.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as type checkers know it; importing typing takes longer than the rest
if TYPE_CHECKING:
    from rocsteady_train.checkpoints.checkpointer import Checkpointer
    from rocsteady_train.checkpoints.folder import CheckpointError
    from rocsteady_train.loop.loop import Loop
    from rocsteady_train.loop.micro_batches import MicroBatchError
    from rocsteady_train.loop.roll_back import RollBack

__version__ = "0.1.0.dev0"

__all__ = ["CheckpointError", "Checkpointer", "Loop", "MicroBatchError", "RollBack", "__version__"]

_MODULES = {
    "CheckpointError": "rocsteady_train.checkpoints.folder",
    "Checkpointer": "rocsteady_train.checkpoints.checkpointer",
    "Loop": "rocsteady_train.loop.loop",
    "MicroBatchError": "rocsteady_train.loop.micro_batches",
    "RollBack": "rocsteady_train.loop.roll_back",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib  # noqa: PLC0415 - most imports of this package need none of these names

    return getattr(importlib.import_module(_MODULES[name]), name)
