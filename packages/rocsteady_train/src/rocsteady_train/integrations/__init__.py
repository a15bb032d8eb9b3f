"""Hooks of other frameworks. Import the module of the one that you use; the others are not needed.

Each framework writes its own checkpoints, and restores them. What is added: which of them is whole,
and what the supervisor is told, if there is one.
"""
