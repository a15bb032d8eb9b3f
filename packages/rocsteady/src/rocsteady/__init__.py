"""rocsteady gets PyTorch training runs finished on AMD GPUs."""

__version__ = "0.1.0.dev0"
