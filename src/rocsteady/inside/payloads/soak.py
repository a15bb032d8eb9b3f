"""The same work again and again, for what shows only after hours."""

from __future__ import annotations

from .attention import attention_step
from .experiment import Experiment
from .models import small_transformer
from .products import matmul_step

EACH = 10  # of one kind before the next: short ones in a row, as in a training


def soak(trial: Experiment) -> None:
    """Multiply, attend and train in turn; attention by the kernel that torch chooses."""
    kinds = (
        matmul_step(trial, "bf16" if trial.device == "cuda" else "fp32"),
        attention_step(trial),
        small_transformer(trial).step,
    )
    for _ in trial.tries():
        for step in kinds:
            for _again in range(EACH):
                step()
            trial.alive()
