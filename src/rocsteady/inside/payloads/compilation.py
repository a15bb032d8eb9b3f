"""torch.compile: forward and backward, against the same without it."""

from __future__ import annotations

import os
from typing import Any

from .experiment import Experiment, NotHere

LACKS = {
    "InvalidCxxCompiler": "no C++ compiler",
    "Python.h": "no headers of Python, which compiled code needs",
    "TritonMissing": "no triton",
    "Cannot find a working triton installation": "no triton",
}


def compiled(trial: Experiment) -> None:
    """Compile a small model, and compare it with itself as it was."""
    # Nothing compiled before is used, and nothing is left behind.
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(trial.folder, "inductor")
    os.environ["TRITON_CACHE_DIR"] = os.path.join(trial.folder, "triton")
    torch = trial.torch
    if not hasattr(torch, "compile"):
        raise NotHere(f"torch {torch.__version__} has no torch.compile")
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.LayerNorm(128), torch.nn.Linear(128, 16)
    ).to(trial.device)
    x = torch.randn(32, 64).to(trial.device)
    exact = net(x)
    exact.pow(2).sum().backward()
    reference = exact.detach().double()
    gradients = [each.grad.detach().double() for each in net.parameters()]
    faster = torch.compile(net)
    bound = 128 * float(torch.finfo(torch.float32).eps)  # 128 terms, in another order
    for _ in trial.tries():
        net.zero_grad()
        found = _first(faster, x)
        found.pow(2).sum().backward()
        trial.compare(found, reference, bound, "compiled model")
        for one, other in zip(net.parameters(), gradients):  # noqa: B905 - Python 3.9
            trial.compare(one.grad, other, 4 * bound, "gradient of the compiled model")


def _first(faster: Any, x: Any) -> Any:
    try:
        return faster(x)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        for mark, lack in LACKS.items():
            if mark in text:
                raise NotHere(lack) from None
        raise
