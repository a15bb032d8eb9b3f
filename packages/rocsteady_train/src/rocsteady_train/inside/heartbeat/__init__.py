"""What the training process reports about itself: step, phase, times, loss, exceptions."""
