"""What a training script imports from us: checkpoints, a loop that resumes, batches in parts.

It needs torch, and nothing of our other dependencies.
"""

from rocsteady.training.checkpointer import Checkpointer
from rocsteady.training.loop import Loop

__all__ = ["Checkpointer", "Loop"]
