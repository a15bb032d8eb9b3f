"""Checkpoints as plain files: the directory protocol, saving and restoring."""
