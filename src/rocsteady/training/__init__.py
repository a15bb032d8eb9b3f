"""What a training script imports from us: checkpoints, a loop that resumes, batches in parts.

It needs torch, and nothing of our other dependencies.
"""

from rocsteady.checkpoint_folder import CheckpointError
from rocsteady.training.checkpointer import Checkpointer
from rocsteady.training.loop import Loop
from rocsteady.training.micro_batches import MicroBatchError

__all__ = ["CheckpointError", "Checkpointer", "Loop", "MicroBatchError"]
