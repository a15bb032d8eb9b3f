"""What comes next? The run loop, attempts, recovery, checkpoints, notifications."""
