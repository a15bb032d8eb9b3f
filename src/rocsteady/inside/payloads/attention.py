"""Attention, forward and backward, with each kernel that this torch has for it."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from .experiment import Experiment, NotHere

BATCH, HEADS, LENGTH, WIDTH = 2, 4, 96, 32
ON_GPU = 512  # tokens
NAMES = {"math": "MATH", "efficient": "EFFICIENT_ATTENTION", "flash": "FLASH_ATTENTION"}
NONE = ("No available kernel", "No viable backend")


def attention_backward(trial: Experiment) -> None:
    """Attend, and go backward."""
    step = attention_step(trial)
    with only(trial.torch, trial.arguments["backend"]):
        for _ in trial.tries():
            step()


def attention_step(trial: Experiment) -> Callable[[], None]:
    """Return what does it once, with whichever kernel may be used then."""
    torch = trial.torch
    kind = _kind(trial)
    length = ON_GPU if trial.device == "cuda" else LENGTH
    generator = torch.Generator().manual_seed(0)
    inputs = [
        torch.randn(BATCH, HEADS, length, WIDTH, generator=generator).to(kind) for _ in range(4)
    ]
    exact = [each.double().requires_grad_() for each in inputs]
    reference = _plain(torch, *exact[:3])
    reference.backward(exact[3].detach())
    query, key, value, upstream = (each.to(trial.device) for each in inputs)
    for each in (query, key, value):
        each.requires_grad_()
    # Each output is a mean over tokens, so that errors do not grow with their number. What is
    # rounded to the type on the way is the scores, the weights, the result, and going backward
    # the same again and a difference of two: eps / 2 each, and we allow sixteen and thirty-two.
    # Scores are sums of WIDTH products in float32, with eps of that type for each.
    eps, single = (float(torch.finfo(each).eps) for each in (kind, torch.float32))
    forward, back = 8 * eps + WIDTH * single, 16 * eps + 2 * WIDTH * single
    leaves = (("query", query, exact[0]), ("key", key, exact[1]), ("value", value, exact[2]))

    def step() -> None:
        query.grad = key.grad = value.grad = None
        found = torch.nn.functional.scaled_dot_product_attention(query, key, value)
        found.backward(upstream)
        trial.compare(found, reference, forward, "attention")
        for name, leaf, right in leaves:
            trial.compare(leaf.grad, right.grad, back, f"gradient of the {name}")

    return step


@contextlib.contextmanager
def only(torch: Any, name: str) -> Iterator[None]:
    """Let attention use this kernel and no other."""
    try:
        from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: PLC0415
    except ImportError:
        raise NotHere(f"torch {torch.__version__} does not let one choose the kernel") from None
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            with sdpa_kernel([getattr(SDPBackend, NAMES[name])]):
                yield
        except RuntimeError as error:
            if not any(text in str(error) for text in NONE):
                raise
            why = [str(each.message).partition(" (Triggered")[0] for each in told]
            told_last = f": {why[-1]}" if why else ""
            raise NotHere(f"this device has no {name} kernel{told_last}") from None


def _kind(trial: Experiment) -> Any:
    torch = trial.torch
    if trial.device == "cpu":
        return torch.float32
    return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16


def _plain(torch: Any, query: Any, key: Any, value: Any) -> Any:
    scores = query @ key.transpose(-2, -1) / WIDTH**0.5
    return torch.softmax(scores, -1) @ value
