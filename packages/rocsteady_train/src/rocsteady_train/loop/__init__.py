"""The training loop, and the order of its batches."""
